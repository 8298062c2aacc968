"""Rollouts by schedule: every start samples a few groups more, until a budget of groups is spent.

    mutoscope schedule add rl_data_generation name=night prompts="…" --every 1h

A start continues where the one before it ended: which iteration is next, and how much of the budget is left,
the catalog says of the starts of that name that succeeded. One that was killed has not; whoever starts next
takes its iteration, draws what it drew, and finds in the memo what it made. Every prompt of the set has its
turn before any comes again, in an order drawn for each round.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

from pydantic import Field, TypeAdapter, ValidationError

from mutoscope.flows.lists import AtOnce
from mutoscope.flows.rl.asks import (
    Ask,
    Asks,
    Follow,
    Laws,
    MaxStaleness,
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
from mutoscope.flows.rl.collect_rollouts import ROLLED, SCORING, T2I, records
from mutoscope.flows.rl.collected import Collected
from mutoscope.flows.rl.collecting import collect
from mutoscope.flows.rl.grouping import CARD, Shape
from mutoscope.flows.rl.settling import Limits, Plan
from mutoscope.flows.rl.stages import Stage
from mutoscope.platform import ids
from mutoscope.platform.engine.card import invalid_parameter
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.orchestration.kinds import Json
from mutoscope.platform.orchestration.runtime import Runtime, get_runtime
from mutoscope.platform.orchestration.workflow import workflow
from mutoscope.platform.refs import ArtifactRef

WORKFLOW = "rl.data_generation"

_ORDER_DOMAIN = "mutoscope.prompt-turns/1"
_MOST_STARTS = 100_000
"""Earlier starts that are looked at."""

Name = Annotated[
    str,
    Field(
        title="Name",
        pattern=r"^[a-zA-Z][\w-]{0,62}$",
        description="Starts of one name continue each other and share a budget.",
    ),
]
PerStart = Annotated[
    int, Field(title="Groups", strict=True, ge=1, le=1000, description="Groups that one start samples.")
]
Budget = Annotated[
    int,
    Field(
        title="Budget", strict=True, ge=1, description="Groups of all starts together, dropped ones included."
    ),
]
DrawSeed = Annotated[
    int,
    Field(
        title="Seed",
        strict=True,
        ge=0,
        lt=2**63,
        description="What all starts draw from, together with the number of the start.",
    ),
]
PromptSet = Annotated[
    Json | None,
    Field(
        title="Prompt set",
        description="Prompts kept as a JSON artifact: a list like `prompts`. Empty where they are given.",
    ),
]


class Generated(TypedDict):
    """The records of this start's groups, those that are dropped apart, and where the budget is."""

    rollouts: list[Json]
    dropped: list[Json]
    summary: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Progress:
    """What earlier starts of a name came to."""

    starts: int = 0
    groups: int = 0


@workflow(WORKFLOW, requires=[*ROLLED, *SCORING, CARD], most_running=1)
async def rl_data_generation(
    name: Name,
    prompts: Asks | None = None,
    prompt_set: PromptSet = None,
    groups: PerStart = 4,
    budget: Budget = 100,
    rewards: Rewards = {"reward-scene": 1.0},  # noqa: B006  (the model copies defaults)
    card: RolloutCard = T2I,
    samples: Samples = 8,
    seed: DrawSeed = 0,
    weights: Selected = [],  # noqa: B006
    parameters: StageParameters = None,
    laws: Laws = ["flow-sde"],  # noqa: B006
    unrefined: Unrefined = 0,
    refills: Refills = 2,
    queue_seconds: QueueSeconds = None,
    score_seconds: ScoreSeconds = None,
    follow: Follow = None,
    max_staleness: MaxStaleness = 0,
    at_once: AtOnce = 8,
) -> Generated:
    """Sample the next groups of a prompt set at the versions of now, if the budget has any left."""
    runtime = get_runtime()
    asks = await asyncio.to_thread(_asks, runtime, prompts, prompt_set)
    so_far = await asyncio.to_thread(progress, runtime, name)
    count = min(groups, budget - so_far.groups)
    if count <= 0:
        stopped = f"budget={budget}: {so_far.groups} groups were made under the name {name}"
        made = Collected(stopped=stopped)
    else:
        plan = Plan(
            stages=[Stage(card, weights, parameters or {}, laws)],
            asks=turn(asks, seed, so_far.groups, count),
            shape=Shape(samples, unrefined, refills=refills),
            rewards=rewards,
            seed=seed,
            iteration=so_far.starts,
            at_once=at_once,
            limits=Limits(None, None, queue_seconds, score_seconds, follow, max_staleness),
        )
        made = await collect(plan)
    found = made.groups.get(card, ())
    told = {"iteration": so_far.starts, "budget_left": max(0, budget - so_far.groups - len(found))}
    return {
        "rollouts": records(made, card),
        "dropped": [group.rollout for group in found if not group.record.kept],
        "summary": {**told, **made.summary()},
    }


def progress(runtime: Runtime, name: str) -> Progress:
    """Starts of that name that sampled anything, and the groups they made."""
    rows = runtime.catalog.workflows.list(workflow=WORKFLOW, state="succeeded", limit=_MOST_STARTS)
    own = [row.outputs or {} for row in rows if row.parameters.get("name") == name]
    groups = [sum(1 for output in outputs if output.startswith(("rollouts.", "dropped."))) for outputs in own]
    return Progress(sum(1 for count in groups if count), sum(groups))


def turn(asks: Sequence[Ask], seed: int, begin: int, count: int) -> list[Ask]:
    """The prompts whose turn it is.

    Args:
        begin: how many had their turn before, in all rounds.
    """
    return [_round(asks, seed, at // len(asks))[at % len(asks)] for at in range(begin, begin + count)]


def _round(asks: Sequence[Ask], seed: int, number: int) -> list[Ask]:
    """All prompts in the order of one round."""
    places = range(len(asks))
    return [asks[at] for at in sorted(places, key=lambda at: ids.digest(_ORDER_DOMAIN, [seed, number, at]))]


def _asks(runtime: Runtime, prompts: Sequence[Ask] | None, prompt_set: ArtifactRef | None) -> list[Ask]:
    if (prompts is None) == (prompt_set is None):
        given = None if prompts is None else f"{len(prompts)} prompts and {prompt_set}"
        raise InvalidParameter("prompts", given, "give either prompts or a prompt_set")
    if prompt_set is None:
        return list(prompts or ())
    held = json.loads(runtime.store.get(prompt_set.digest))
    try:
        asks: list[Ask] = TypeAdapter(Asks).validate_python(held)
    except ValidationError as error:
        raise InvalidParameter(
            "prompt_set", str(prompt_set), f"it is no list of prompts ({invalid_parameter(error, {})})"
        ) from None
    return asks
