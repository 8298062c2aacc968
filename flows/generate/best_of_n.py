"""The best of several pictures, as a reward sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

from pydantic import Field

from mutoscope.flows.generate.score import TARGETS
from mutoscope.flows.lists import AtOnce, Count, seeds_from
from mutoscope.flows.parameters import (
    MAX_PROMPT,
    Guidance,
    Prompt,
    RewardCard,
    Seed,
    Size,
    Steps,
    height_and_width,
)
from mutoscope.platform.errors import RunFailed
from mutoscope.platform.orchestration.engine_run import engine_run
from mutoscope.platform.orchestration.fan_out import try_each
from mutoscope.platform.orchestration.kinds import Image, RewardRef
from mutoscope.platform.orchestration.scoring import Scored, score
from mutoscope.platform.orchestration.workflow import workflow
from mutoscope.platform.refs import ArtifactRef

Enough = Annotated[
    float | None,
    Field(
        title="Enough",
        allow_inf_nan=False,
        description="A score that is good enough: while none reaches it, further rounds are made. Empty: one "
        "round.",
    ),
]

Rounds = Annotated[
    int,
    Field(title="Rounds", strict=True, ge=1, le=16, description="The most rounds, where `enough` is set."),
]


OptionalTarget = Annotated[
    str | None,
    Field(
        title="Held against",
        max_length=MAX_PROMPT,
        description="What pictures are scored for, such as a text to be read in them. Empty: the prompt.",
    ),
]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One sample and what was said of it. Without a score it is out of the running, whatever the reason."""

    seed: int
    image: str | None
    status: str
    score: float | None
    reason: str | None


class Best(TypedDict):
    """The winner, its reward, and what became of every candidate."""

    image: Image
    reward: RewardRef
    candidates: list[Candidate]


@dataclass(frozen=True, slots=True)
class _Sample:
    seed: int
    image: ArtifactRef
    scored: Scored

    @property
    def candidate(self) -> Candidate:
        reward = self.scored.reward
        return Candidate(self.seed, str(self.image), reward.status, reward.score, reward.reason)


@workflow("image.best_of_n", requires=["flux-t2i", *TARGETS])
async def best_of_n(
    prompt: Prompt,
    count: Count = 4,
    reward: RewardCard = "reward-scene",
    target: OptionalTarget = None,
    enough: Enough = None,
    rounds: Rounds = 1,
    seed: Seed = None,
    size: Size = None,
    steps: Steps = None,
    guidance: Guidance = None,
    at_once: AtOnce = 8,
) -> Best:
    """Make several pictures, score each, and keep the best; of equal scores, the one of the first seed.

    A picture that could not be scored, or that could not be made, is on the list with the reason and never
    wins: no score is not a score of 0. Where none has a score the workflow fails.
    """

    async def sample(own: int) -> _Sample:
        made = await engine_run(
            "flux-t2i",
            prompt=prompt,
            seed=own,
            num_inference_steps=steps,
            guidance_scale=guidance,
            **height_and_width(size),
        )
        given: dict[str, Any] = {"image": made["image"], TARGETS[reward]: target or prompt}
        scored = await score(reward, **given)
        return _Sample(own, made["image"], scored)

    candidates: list[Candidate] = []
    best: _Sample | None = None
    seeds = seeds_from(seed, count * rounds)
    for begin in range(0, len(seeds), count):
        drawn = seeds[begin : begin + count]
        made = await try_each(drawn, sample, catch=RunFailed, at_most=at_once)
        for own, each in zip(drawn, made, strict=True):
            if isinstance(each, RunFailed):
                candidates.append(Candidate(own, None, "failed", None, str(each)))
                continue
            candidates.append(each.candidate)
            best = _better(best, each)
        if enough is None or (best is not None and _score(best) >= enough):
            break
    if best is None or best.scored.ref is None:
        raise RunFailed(f"none of {len(candidates)} candidates has a score: {candidates[0].reason}")
    return {"image": best.image, "reward": best.scored.ref, "candidates": candidates}


def _better(best: _Sample | None, other: _Sample) -> _Sample | None:
    if other.scored.reward.score is None:
        return best
    return other if best is None or _score(other) > _score(best) else best


def _score(sample: _Sample) -> float:
    score = sample.scored.reward.score
    assert score is not None, "only what has a score is compared"
    return score
