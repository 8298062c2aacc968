"""One group: its places filled, refilled where that may help, and put on record for every stage."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from mutoscope.flows.rl.collected import Group, group_of
from mutoscope.flows.rl.sampling import Place, Rolled, Sampled, Sampler
from mutoscope.flows.rl.stages import Settled
from mutoscope.platform.orchestration.engine_run import engine_run
from mutoscope.platform.orchestration.fan_out import for_each
from mutoscope.platform.orchestration.runtime import get_runtime
from mutoscope.platform.refs import ArtifactRef
from mutoscope.platform.training.groups import Dropped, RolloutRecord, Sample, verdict

CARD = "rollout-group"


@dataclass(frozen=True, slots=True)
class Shape:
    """What a group is made of.

    Attributes:
        samples: places. unrefined: how many of them, the last ones, keep the prompt as it is.
        branches: ways at each refiner; empty: every sample is refined by itself.
        refills: samples without a score that are sampled again, in all.
    """

    samples: int
    unrefined: int = 0
    branches: tuple[int, ...] = ()
    refills: int = 2

    def places(self) -> list[Place]:
        """The places, as they are filled first."""
        refined = self.samples - self.unrefined
        paths = [self._path(number, refined) for number in range(refined)]
        drawn = [Place(number, path=path) for number, path in enumerate(paths)]
        return drawn + [Place(number, refined=False) for number in range(refined, self.samples)]

    def _path(self, number: int, refined: int) -> tuple[int, ...] | None:
        """The branch of the tree that a sample hangs on: leaves are filled evenly, one after another."""
        if not self.branches:
            return None
        leaf, path = number * prod(self.branches) // refined, []
        for ways in reversed(self.branches):
            path.append(leaf % ways)
            leaf //= ways
        return tuple(reversed(path))


async def sampled_group(sampler: Sampler, shape: Shape, at_once: asyncio.Semaphore) -> list[Group]:
    """Sample a group and put it on the record, a record for each stage."""

    async def fill(place: Place) -> Sampled:
        async with at_once:
            return await sampler.sample(place)

    filled: dict[int, Sampled] = {}
    dropped: list[Dropped] = []
    waiting, refills = shape.places(), shape.refills
    while waiting:
        for made in await for_each(waiting, fill, at_most=len(waiting)):
            filled[made.place.number] = made
        # In the order of places, not of arrival: a group that is collected again drops and draws the same.
        lost = [each for _, each in sorted(filled.items()) if each.score is None and not each.final]
        waiting = [replace(each.place, attempt=each.place.attempt + 1) for each in lost[:refills]]
        refills -= len(waiting)
        dropped += [
            _dropped(each, sampler.draw.sample_seed(place.number, place.attempt))
            for each, place in zip(lost, waiting, strict=False)
        ]
    whole = [each for _, each in sorted(filled.items())]
    stages = range(len(sampler.stages))
    dropped += [_dropped(each) for each in whole if len(each.rolled) < len(stages)]
    kept = [each for each in whole if len(each.rolled) == len(stages)]
    return [await _recorded(sampler, at, kept, dropped) for at in stages]


async def _recorded(sampler: Sampler, at: int, kept: Sequence[Sampled], dropped: Sequence[Dropped]) -> Group:
    """A stage's record, as a run that used the stage's rollouts and their rewards."""
    record = _record(sampler, sampler.stages[at], [(each, each.rolled[at]) for each in kept], dropped)
    scored = [scored.ref for each in kept for scored in each.rewards.values()]
    inputs: dict[str, list[ArtifactRef]] = {
        "trajectories": [each.rolled[at].outputs["trajectory"] for each in kept],
        "rewards": [ref for ref in scored if ref is not None],
        "tokens": _unique(ref for each in kept for ref in each.rolled[at].tokens.values()),
    }
    given: dict[str, Any] = {name: refs for name, refs in inputs.items() if refs}
    outputs = await engine_run(CARD, record=record.to_json(), **given)
    return await asyncio.to_thread(group_of, get_runtime(), outputs["rollout"])


def _record(
    sampler: Sampler,
    stage: Settled,
    rolled: Sequence[tuple[Sampled, Rolled]],
    dropped: Sequence[Dropped],
) -> RolloutRecord:
    parameters = stage.resolved(sampler.ask, sampler.draw)
    tokens = _unique(ref for _, one in rolled for ref in one.tokens.values())
    images = _unique(one.image for _, one in rolled if one.image is not None)
    return RolloutRecord(
        card=stage.card.id,
        prompt=sampler.ask.prompt,
        target=sampler.ask.against,
        draw=sampler.draw,
        parameters=parameters,
        group_seed=sampler.draw.group_seed,
        law=parameters.get("law"),
        window=stage.window(parameters),
        noise_scale=parameters.get("noise_scale"),
        weights={component: version.digest for component, version in stage.versions.items()},
        versions=stage.weights,
        rewards={scorer.card: scorer.share for scorer in sampler.scorers},
        samples=tuple(
            Sample(
                seed=made.seed,
                prompt=one.prompt,
                refined=bool(stage.parts) and made.place.refined,
                status=made.status,
                score=made.score,
                reason=made.reason,
                details={card: scored.reward.to_json() for card, scored in made.rewards.items()},
                trajectory=(at, 0),
                tokens={part: tokens.index(ref) for part, ref in one.tokens.items()},
                image=None if one.image is None else images.index(one.image),
                nodes=one.nodes,
            )
            for at, (made, one) in enumerate(rolled)
        ),
        dropped=tuple(dropped),
        trajectories=tuple(one.outputs["trajectory"].digest for _, one in rolled),
        tokens=_digests(tokens),
        images=_digests(images),
        reason=verdict([*(made.status for made, _ in rolled), *(each.status for each in dropped)]),
    )


def _dropped(sampled: Sampled, replaced_by: int | None = None) -> Dropped:
    reason = sampled.reason or "no reason was given"
    return Dropped(seed=sampled.seed, status=sampled.status, reason=reason, replaced_by=replaced_by)


def _unique(refs: Iterable[ArtifactRef]) -> list[ArtifactRef]:
    """Each once, in the order in which they come first."""
    return list({ref.digest: ref for ref in refs}.values())


def _digests(refs: Iterable[ArtifactRef]) -> tuple[str, ...]:
    return tuple(ref.digest for ref in refs)
