"""The loop that scores one sample: a scorer's steps, then its verdict as a reward.

What the sample decides is a result: a score, a value that is not finite, or that the scorer cannot judge it.
It is recorded, and an equal request gets the same again. What the sample does not decide, such as that time
or memory ran out, is none: the request fails, and a later one computes anew. Whoever reads the run's error
takes that for a reward without a score; see `mutoscope.platform.orchestration.scoring`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mutoscope.models.reward.common.sample import check_sample, count_of, subject_of
from mutoscope.platform.engine.loop import (
    WARNINGS,
    ComponentNode,
    Done,
    LoopNode,
    LoopState,
    Program,
    WorkPlan,
)
from mutoscope.platform.engine.request import Output, Request
from mutoscope.platform.errors import ScoreTimeout
from mutoscope.platform.reward import Reward

KIND = "reward_batch"
"""What every scoring step is. Those that offer rows share calls across requests."""


class Unscorable(Exception):
    """The scorer cannot judge this sample, however often it is asked. The message says why."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a scorer concludes: a number, which need not be finite, and what it is made of."""

    value: float
    details: Mapping[str, Any]
    warnings: tuple[str, ...] = ()


class Scorer(Protocol):
    """A way to score. Shared by all requests on an instance, so it keeps nothing of any of them."""

    def count(self, request: Request) -> int:
        """How many steps a sample takes, at least one."""
        ...

    def steps(self, slots: Mapping[str, Any]) -> Sequence[WorkPlan]:
        """The steps of a sample, which do not depend on each other. No kernel is launched."""
        ...

    def conclude(self, slots: Mapping[str, Any], results: Sequence[Any]) -> Verdict:
        """The verdict, given the steps' results in their order. Raises Unscorable."""
        ...


@dataclass(slots=True, kw_only=True)
class ScoreState(LoopState):
    """One sample on its way."""

    slots: Mapping[str, Any]
    plans: Sequence[WorkPlan]
    deadline: float
    results: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Score:
    """The loop of every reward card."""

    card: str
    scorer: Scorer
    clock: Callable[[], float] = time.monotonic
    name: str = "score"

    def init(self, slots: Mapping[str, Any]) -> ScoreState:
        limit = slots["request"].parameters["time_limit"]
        plans = self.scorer.steps(slots)
        deadline = float("inf") if limit is None else self.clock() + limit
        return ScoreState(total=len(plans), slots=slots, plans=plans, deadline=deadline)

    def next(self, state: ScoreState) -> WorkPlan | Done:
        """A score that is there is kept, however late; what is still to do is given up."""
        if state.step == state.total:
            return Done()
        if state.step and self.clock() > state.deadline:
            limit = state.slots["request"].parameters["time_limit"]
            raise ScoreTimeout(
                f"{self.card} had done {state.step} of {state.total} steps after {limit:g} s: "
                "raise time_limit or look at fewer frames"
            )
        return state.plans[state.step]

    def advance(self, state: ScoreState, result: Any) -> None:
        state.results.append(result)
        state.step += 1

    def finalize(self, state: ScoreState) -> Mapping[str, Any]:
        subject = subject_of(state.slots["request"])
        try:
            verdict = self.scorer.conclude(state.slots, state.results)
        except Unscorable as reason:
            return {"reward": Reward.failed(self.card, subject, str(reason))}
        reward = Reward.of(self.card, subject, verdict.value, verdict.details)
        return {"reward": reward, WARNINGS: verdict.warnings}


def reward_program(
    card: str,
    scorer: Scorer,
    *before: ComponentNode,
    check: Callable[[Request], object] = lambda request: None,
) -> Program:
    """The program of a reward card.

    Args:
        before: nodes that fill slots for the scorer, such as the features of a prompt.
        check: refuses more than a missing sample, by raising InvalidParameter.
    """

    def check_all(request: Request) -> None:
        check_sample(request)
        check(request)

    return Program(
        nodes=(*before, LoopNode(Score(card, scorer), total=lambda slots: scorer.count(slots["request"]))),
        outputs=outputs,
        check=check_all,
        extent=lambda request: float(count_of(request)),
    )


def outputs(slots: Mapping[str, Any]) -> Mapping[str, Output]:
    """The card's one output slot."""
    reward: Reward = slots["reward"]
    return {"reward": Output("reward", reward.to_json(), reward.meta)}
