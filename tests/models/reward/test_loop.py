"""What becomes of a sample: the loop over a scorer that does as it is told, driven by the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from mutoscope.models.reward.common.loop import KIND, Score, Unscorable, Verdict, outputs, reward_program
from mutoscope.models.reward.common.parameters import INPUTS, OUTPUTS, RewardParameters, RewardRecipe
from mutoscope.platform.engine.card import Card
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.loop import LoopNode, Program, WorkPlan
from mutoscope.platform.engine.request import Request
from mutoscope.platform.errors import InvalidParameter, ScoreTimeout
from mutoscope.platform.reward import Reward

CARD = Card(
    id="reward-told",
    title="Says what it is told",
    components=(),
    inputs=INPUTS,
    outputs=OUTPUTS,
    parameters=RewardParameters,
    recipe=RewardRecipe,
    inspector="nowhere:inspect",
    loader="nowhere:load",
    builder="nowhere:build",
    run_kind="reward",
    seeded=False,
)
IMAGE = np.zeros((4, 4, 3), np.uint8)
CLIP = np.arange(6, dtype=np.uint8)[:, None, None, None] * np.ones((1, 4, 4, 3), np.uint8)


@dataclass
class Told:
    """Concludes by calling `say`; `work` runs in each step."""

    say: Callable[[Sequence[Any]], Verdict]
    work: Callable[[int], Any] = lambda at: at
    plans: int = 3
    kinds: list[str] = field(default_factory=list)

    def count(self, request: Request) -> int:
        return self.plans

    def steps(self, slots: Mapping[str, Any]) -> Sequence[WorkPlan]:
        return [WorkPlan(KIND, (), lambda at=at: self.work(at)) for at in range(self.plans)]

    def conclude(self, slots: Mapping[str, Any], results: Sequence[Any]) -> Verdict:
        return self.say(results)


def instance_of(program: Program) -> Instance:
    return Instance(CARD, program, RewardRecipe(), torch.device("cpu"))


def run(scorer: Told, **inputs: Any) -> Reward:
    instance = instance_of(reward_program(CARD.id, scorer))
    result = Engine().run(instance, Request("one", CARD.id, inputs or {"image": IMAGE}, {}, 0))
    assert result.outputs["reward"].meta == Reward.from_json(result.outputs["reward"].value).meta
    return Reward.from_json(result.outputs["reward"].value)


def test_a_verdict_is_made_of_every_step_in_order() -> None:
    reward = run(Told(lambda results: Verdict(sum(results), {"seen": list(results)})))
    assert (reward.status, reward.score, reward.details) == ("score", 3.0, {"seen": [0, 1, 2]})


def test_a_value_that_is_not_finite_is_a_result() -> None:
    reward = run(Told(lambda results: Verdict(float("nan"), {"part": float("nan")})))
    assert (reward.status, reward.score) == ("non_finite", None)


def test_a_sample_that_cannot_be_judged_is_a_result() -> None:
    def refuse(results: Sequence[Any]) -> Verdict:
        raise Unscorable("there is\nnothing in it")

    reward = run(Told(refuse))
    assert (reward.status, reward.score, reward.reason) == ("failed", None, "there is nothing in it")


def test_a_scorer_that_breaks_fails_the_request() -> None:
    """Its trouble says nothing about the sample, so it must not be remembered as the sample's reward."""

    def break_down(at: int) -> int:
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        run(Told(lambda results: Verdict(1.0, {}), break_down))


class Clock:
    """Time as steps spend it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(("limit", "steps"), [(0.5, 1), (1.5, 2), (2.5, 3), (9.0, 3)])
def test_time_is_up_at_a_step_boundary(limit: float, steps: int) -> None:
    """Three steps of one second. With the last one done there is a score, which is kept however late."""
    clock, done = Clock(), []

    def work(at: int) -> int:
        clock.now += 1.0
        done.append(at)
        return at

    scorer = Told(lambda results: Verdict(1.0, {}), work)
    loop = LoopNode(Score(CARD.id, scorer, clock), total=lambda slots: 3)
    instance = instance_of(Program((loop,), outputs))
    request = Request("one", CARD.id, {"image": IMAGE}, {"time_limit": limit}, 0)
    if steps == 3:
        assert Engine().run(instance, request).outputs["reward"].meta == {"status": "score", "score": 1.0}
    else:
        line = f"reward-told had done {steps} of 3 steps after {limit} s: raise time_limit or look at fewer"
        with pytest.raises(ScoreTimeout, match=f"^{line}"):
            Engine().run(instance, request)
    assert len(done) == steps


def test_a_sample_is_an_image_or_a_video() -> None:
    scorer = Told(lambda results: Verdict(1.0, {}))
    with pytest.raises(
        InvalidParameter, match=r"^image=None is not valid: reward-told needs an image or a vid"
    ):
        _submit(scorer, {})
    with pytest.raises(
        InvalidParameter, match=r"^video='given' is not valid: give an image or a video, not b"
    ):
        _submit(scorer, {"image": IMAGE, "video": CLIP})


def _submit(scorer: Told, inputs: dict[str, Any]) -> None:
    Engine().submit(instance_of(reward_program(CARD.id, scorer)), Request("one", CARD.id, inputs, {}, 0))


def test_equal_scores_of_two_samples_are_two_rewards() -> None:
    scorer = Told(lambda results: Verdict(1.0, {}))
    subjects = [
        run(scorer, image=IMAGE).subject,
        run(scorer, image=IMAGE + 1).subject,
        run(scorer, image=IMAGE.reshape(2, 8, 3)).subject,
        run(scorer, video=IMAGE[None]).subject,
    ]
    assert len(set(subjects)) == 4
    assert run(scorer, image=IMAGE.copy()).subject == subjects[0]
