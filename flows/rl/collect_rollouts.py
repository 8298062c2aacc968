"""Groups of rollouts for training: of one card, or of a picture's card and a video's that begins with it."""

from __future__ import annotations

from typing import Any, TypedDict

from mutoscope.flows.lists import AtOnce
from mutoscope.flows.parameters import Seed
from mutoscope.flows.rl.asks import (
    Asks,
    Branches,
    Follow,
    Iteration,
    Laws,
    MaxStaleness,
    MostGroups,
    MostSamples,
    QueueSeconds,
    Refills,
    Rewards,
    RolloutCard,
    Samples,
    ScoreSeconds,
    Selected,
    StageParameters,
    Unrefined,
)
from mutoscope.flows.rl.collected import Collected
from mutoscope.flows.rl.collecting import collect
from mutoscope.flows.rl.grouping import CARD, Shape
from mutoscope.flows.rl.settling import Limits, Plan
from mutoscope.flows.rl.stages import Stage
from mutoscope.models.registry import cards
from mutoscope.platform.engine.request import Profile
from mutoscope.platform.orchestration.kinds import Json
from mutoscope.platform.orchestration.workflow import workflow
from mutoscope.platform.refs import ArtifactRef

ROLLED = tuple(card.id for card in cards().values() if Profile.ROLLOUT in card.profiles)
SCORING = tuple(card.id for card in cards().values() if card.run_kind == "reward")
T2I, I2V = "flux-t2i", "wan-i2v"


class Rollouts(TypedDict):
    """The records of the groups that can teach something, and what became of all."""

    rollouts: list[Json]
    summary: dict[str, Any]


class StagedRollouts(TypedDict):
    """The records of both stages, group by group, and what became of all."""

    image_rollouts: list[Json]
    video_rollouts: list[Json]
    summary: dict[str, Any]


@workflow("rl.collect_rollouts", requires=[*ROLLED, *SCORING, CARD])
async def collect_rollouts(
    prompts: Asks,
    rewards: Rewards = {"reward-scene": 1.0},  # noqa: B006  (the model copies defaults)
    card: RolloutCard = T2I,
    samples: Samples = 8,
    seed: Seed = None,
    iteration: Iteration = 0,
    weights: Selected = [],  # noqa: B006
    parameters: StageParameters = None,
    laws: Laws = ["flow-sde"],  # noqa: B006
    unrefined: Unrefined = 0,
    branches: Branches = [],  # noqa: B006
    refills: Refills = 2,
    max_groups: MostGroups = None,
    max_samples: MostSamples = None,
    queue_seconds: QueueSeconds = None,
    score_seconds: ScoreSeconds = None,
    follow: Follow = None,
    max_staleness: MaxStaleness = 0,
    at_once: AtOnce = 8,
) -> Rollouts:
    """Sample a group of every prompt with capture on, and score each sample.

    A sample without a score is sampled again or stays without one: no score is not a score of 0. A group in
    which fewer than two samples have one is dropped, on the record.
    """
    plan = Plan(
        stages=[Stage(card, weights, parameters or {}, laws)],
        asks=prompts,
        shape=Shape(samples, unrefined, tuple(branches), refills),
        rewards=rewards,
        seed=_drawn(seed),
        iteration=iteration,
        at_once=at_once,
        limits=Limits(max_groups, max_samples, queue_seconds, score_seconds, follow, max_staleness),
    )
    made = await collect(plan)
    return {"rollouts": records(made, card), "summary": made.summary()}


@workflow("rl.collect_workflow_rollouts", requires=[*ROLLED, *SCORING, CARD])
async def collect_workflow_rollouts(
    prompts: Asks,
    rewards: Rewards = {"reward-scene": 1.0},  # noqa: B006
    samples: Samples = 8,
    seed: Seed = None,
    iteration: Iteration = 0,
    weights: Selected = [],  # noqa: B006
    image_parameters: StageParameters = None,
    video_parameters: StageParameters = None,
    laws: Laws = ["flow-sde"],  # noqa: B006
    refills: Refills = 2,
    max_groups: MostGroups = None,
    max_samples: MostSamples = None,
    queue_seconds: QueueSeconds = None,
    score_seconds: ScoreSeconds = None,
    at_once: AtOnce = 8,
) -> StagedRollouts:
    """Sample whole films: a picture of the prompt, then a video that begins with it, both with capture on.

    The video's score counts for both stages, each of which has a record of its own.
    """
    plan = Plan(
        stages=[
            Stage(T2I, _of(weights, T2I), image_parameters or {}, laws),
            Stage(I2V, _of(weights, I2V), video_parameters or {}, laws),
        ],
        asks=prompts,
        shape=Shape(samples, refills=refills),
        rewards=rewards,
        seed=_drawn(seed),
        iteration=iteration,
        at_once=at_once,
        limits=Limits(max_groups, max_samples, queue_seconds, score_seconds),
    )
    made = await collect(plan)
    return {
        "image_rollouts": records(made, T2I),
        "video_rollouts": records(made, I2V),
        "summary": made.summary(),
    }


def records(made: Collected, card: str) -> list[ArtifactRef]:
    """The records of a card's kept groups."""
    return [group.rollout for group in made.kept(card)]


def _of(weights: list[str], card: str) -> list[str]:
    """The selections that name a card."""
    return [text for text in weights if text.partition("@")[0].partition("/")[0] == card]


def _drawn(seed: int | None) -> int:
    assert seed is not None, "a workflow is called with a seed: one that is not given is drawn"
    return seed
