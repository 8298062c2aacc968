"""What a policy shows for fixed prompts and seeds, served as anybody would be, and what judges say of it.

Nothing is trained on what is made here. Judges are reward cards, the training's own and others that it was
not taught by; statistics of the pictures tell whether they decay. All of it is runs, so equal evaluations of
equal versions cost nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mutoscope.flows.rl.asks import Ask
from mutoscope.flows.rl.settling import target_of
from mutoscope.models.registry import get_card
from mutoscope.platform.errors import RunFailed
from mutoscope.platform.orchestration.engine_run import engine_run
from mutoscope.platform.orchestration.fan_out import for_each
from mutoscope.platform.orchestration.scoring import Scored, score
from mutoscope.platform.refs import ArtifactRef


@dataclass(frozen=True, slots=True)
class Served:
    """A card as it is asked for every sample.

    Attributes:
        weights: version by component. parameters: apart from the prompt.
    """

    card: str
    weights: Mapping[str, str]
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def takes_image(self) -> bool:
        """Whether it begins with a picture."""
        return any(slot.name == "image" and slot.required for slot in get_card(self.card).inputs)


@dataclass(frozen=True, slots=True)
class Judge:
    """A reward card and the version of each of its components."""

    card: str
    weights: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Shown:
    """A sample and what was said of it; `made` is None where a card failed, for the reason given."""

    ask: Ask
    seed: int
    made: ArtifactRef | None
    scores: Mapping[str, Scored] = field(default_factory=dict)
    reason: str | None = None

    def value(self, judge: str) -> float | None:
        """What a judge gave it."""
        scored = self.scores.get(judge)
        return None if scored is None else scored.reward.score

    def told(self) -> dict[str, Any]:
        """As an evaluation's record has it."""
        return {
            "prompt": self.ask.prompt,
            "target": self.ask.against,
            "seed": self.seed,
            "made": None if self.made is None else str(self.made),
            "reason": self.reason,
            "scores": {
                judge: {"status": scored.reward.status, "score": scored.reward.score}
                for judge, scored in sorted(self.scores.items())
            },
        }


async def shown(
    stages: Sequence[Served],
    asks: Sequence[Ask],
    seeds: Sequence[int],
    judges: Sequence[Judge],
    *,
    at_once: int = 8,
) -> list[Shown]:
    """A sample of every prompt with every seed, by prompt and then by seed.

    Raises:
        InvalidInput: a card cannot be asked that, or nobody serves it.
    """

    async def sample(cell: tuple[Ask, int]) -> Shown:
        ask, seed = cell
        try:
            made = await _made(stages, ask, seed)
        except RunFailed as error:
            return Shown(ask, seed, None, reason=str(error))
        return Shown(ask, seed, made, {judge.card: await judged(judge, made, ask) for judge in judges})

    return await for_each([(ask, seed) for ask in asks for seed in seeds], sample, at_most=at_once)


async def judged(judge: Judge, made: ArtifactRef, ask: Ask) -> Scored:
    """What a judge says of a picture or video."""
    given: dict[str, Any] = {made.kind: made, target_of(get_card(judge.card)): ask.against}
    return await score(judge.card, weights=judge.weights or None, **given)


def mean(samples: Sequence[Shown], judge: str) -> float | None:
    """The mean of the scores that a judge gave; None where it gave none."""
    scores = [value for one in samples if (value := one.value(judge)) is not None]
    return statistics.fmean(scores) if scores else None


def summary(samples: Sequence[Shown], judges: Sequence[Judge]) -> dict[str, Any]:
    """Scores by judge: the mean, and how many samples have one."""
    return {
        judge.card: {
            "mean": mean(samples, judge.card),
            "scored": sum(one.value(judge.card) is not None for one in samples),
            "samples": len(samples),
        }
        for judge in judges
    }


async def read(samples: Sequence[Shown]) -> ArtifactRef | None:
    """Statistics of the samples that there are, those of a prompt as a group; None if there are none."""
    made = [one.made for one in samples if one.made is not None]
    if not made:
        return None
    groups: dict[tuple[str, str], int] = {}
    for one in samples:
        if one.made is not None:
            key = (one.ask.prompt, one.ask.against)
            groups[key] = groups.get(key, 0) + 1
    given: dict[str, Any] = {f"{made[0].kind}s": made}
    outputs = await engine_run("picture-statistics", groups=list(groups.values()), **given)
    return outputs["statistics"]


async def _made(stages: Sequence[Served], ask: Ask, seed: int) -> ArtifactRef:
    """What the last stage makes; each begins with the picture that the one before it made."""
    image: ArtifactRef | str | None = ask.images[0] if ask.images else None
    for stage in stages:
        begun: dict[str, Any] = {"image": image} if stage.takes_image else {}
        outputs = await engine_run(
            stage.card, seed=seed, weights=stage.weights, prompt=ask.prompt, **begun, **stage.parameters
        )
        image = outputs.get("image")
    return outputs["video"] if "video" in outputs else outputs["image"]
