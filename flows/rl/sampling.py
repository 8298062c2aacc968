"""One sample: a rollout of every stage, then its rewards. What becomes of it is a status, with a reason."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from mutoscope.flows.rl.asks import Ask
from mutoscope.flows.rl.stages import GENERATOR, REFINE, SEEDS, Settled, tokens_of
from mutoscope.platform.catalog import RunRecord
from mutoscope.platform.engine.request import Profile
from mutoscope.platform.errors import (
    NonFinite,
    RunCancelled,
    RunFailed,
    TimeLimitExceeded,
    WorkflowCancelled,
)
from mutoscope.platform.orchestration.context import observer
from mutoscope.platform.orchestration.engine_run import engine_run
from mutoscope.platform.orchestration.runtime import get_runtime
from mutoscope.platform.orchestration.scoring import Scored, score
from mutoscope.platform.refs import ArtifactRef
from mutoscope.platform.reward import Status
from mutoscope.platform.training.groups import Draw, combined

Made = TypeVar("Made")


class NotBegun(Exception):
    """No worker took a rollout in the time that it may wait."""


@dataclass(frozen=True, slots=True)
class Scorer:
    """A reward card with its versions pinned.

    Attributes:
        share: its weight in the score.
        target: the parameter that says what a sample is held against.
    """

    card: str
    share: float
    target: str
    weights: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a group, and how it is filled.

    Attributes:
        attempt: 0, and one more for each refill.
        refined: whether refiners are asked.
        path: the branch taken at every refiner; None: each draws for this sample alone.
    """

    number: int
    attempt: int = 0
    refined: bool = True
    path: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Rolled:
    """A stage's rollout.

    Attributes:
        prompt: as the generator drew it.
        image: what it began with.
        outputs: by slot. nodes: by expert, the seed that it drew with.
    """

    prompt: str
    image: ArtifactRef | None
    outputs: Mapping[str, ArtifactRef]
    nodes: Mapping[str, str]

    @property
    def tokens(self) -> dict[str, ArtifactRef]:
        """What refiners wrote, by part."""
        return tokens_of(self.outputs)


@dataclass(frozen=True, slots=True)
class Sampled:
    """What became of a place.

    Attributes:
        rolled: by stage; fewer than stages where a rollout ended without one.
        final: another seed would fare no better.
    """

    place: Place
    seed: int
    status: Status
    score: float | None
    reason: str | None
    rolled: tuple[Rolled, ...] = ()
    rewards: Mapping[str, Scored] = field(default_factory=dict)
    final: bool = False


@dataclass(frozen=True, slots=True)
class Sampler:
    """Makes the samples of one group.

    Attributes:
        images: what samples begin with: none, one for all, or one for each.
        queue_seconds: how long a rollout may wait for a worker; score_seconds: how long a score may take.
    """

    stages: Sequence[Settled]
    scorers: Sequence[Scorer]
    ask: Ask
    draw: Draw
    images: Sequence[ArtifactRef] = ()
    queue_seconds: float | None = None
    score_seconds: float | None = None

    async def sample(self, place: Place) -> Sampled:
        """Fill a place. Raises only what no sample is at fault for."""
        seed = self.draw.sample_seed(place.number, place.attempt)
        ended = partial(Sampled, place, seed)
        rolled: list[Rolled] = []
        try:
            for stage in self.stages:
                begun = rolled[-1].outputs["image"] if rolled else self._image(place)
                rolled.append(await self._rollout(stage, place, seed, begun))
        except WorkflowCancelled:
            raise
        except NotBegun as late:
            return ended("timeout", None, str(late), tuple(rolled), final=True)
        except TimeLimitExceeded as overdue:
            return ended("timeout", None, str(overdue), tuple(rolled))
        except NonFinite as overflow:
            return ended("non_finite", None, str(overflow), tuple(rolled))
        except (RunFailed, RunCancelled) as error:
            return ended("failed", None, str(error), tuple(rolled))
        rewards = await self._scores(rolled[-1])
        shares = {scorer.card: scorer.share for scorer in self.scorers}
        whole = combined({card: scored.reward for card, scored in rewards.items()}, shares)
        return ended(whole.status, whole.score, whole.reason, tuple(rolled), rewards)

    async def _rollout(self, stage: Settled, place: Place, seed: int, image: ArtifactRef | None) -> Rolled:
        given = stage.given(self.ask, self.draw)
        nodes: dict[str, int] = {}
        if stage.parts:
            nodes = {part: self._node_seed(at, part, place) for at, part in enumerate(stage.parts)}
            given |= {REFINE: place.refined} | ({SEEDS: nodes} if place.refined else {})
        if image is not None and stage.takes_image:
            given["image"] = image
        run = partial(engine_run, stage.card.id, seed=seed, profile=Profile.ROLLOUT, weights=stage.weights)
        outputs = await begun_within(self.queue_seconds, partial(run, **given))
        experts = {part: str(nodes[part]) for part in tokens_of(outputs)}
        if stage.parts:
            experts[GENERATOR] = str(seed)
        prompt = await asyncio.to_thread(_text, outputs["text"]) if "text" in outputs else self.ask.prompt
        return Rolled(prompt, given.get("image"), outputs, experts)

    def _node_seed(self, at: int, part: str, place: Place) -> int:
        """The seed of a refiner, which all samples share that branched alike so far."""
        path = (place.number, place.attempt) if place.path is None else place.path[: at + 1]
        return self.draw.node_seed(part, path)

    def _image(self, place: Place) -> ArtifactRef | None:
        return self.images[place.number % len(self.images)] if self.images else None

    async def _scores(self, rolled: Rolled) -> dict[str, Scored]:
        medium = self.stages[-1].medium
        rewards: dict[str, Scored] = {}
        for scorer in self.scorers:
            given: dict[str, Any] = {medium: rolled.outputs[medium], scorer.target: self.ask.against}
            rewards[scorer.card] = await score(
                scorer.card, patience=self.score_seconds, weights=scorer.weights or None, **given
            )
        return rewards


async def begun_within(seconds: float | None, run: Callable[[], Awaitable[Made]]) -> Made:
    """What a run comes to, if a worker takes it in time.

    Raises:
        NotBegun: it was still queued after `seconds`; it is withdrawn.
    """
    if seconds is None:
        return await run()
    around = observer.get()
    waiting = asyncio.timeout(seconds)

    def observe(record: RunRecord) -> None:
        if around is not None:
            around(record)
        if record.state != "queued" and not waiting.expired():
            waiting.reschedule(None)

    token = observer.set(observe)
    try:
        async with waiting:
            return await run()
    except TimeoutError:
        raise NotBegun(f"no worker took it within {seconds:g} s") from None
    finally:
        observer.reset(token)


def _text(ref: ArtifactRef) -> str:
    return get_runtime().store.get(ref.digest).decode()
