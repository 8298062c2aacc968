"""What a rollout may be asked for: windows, levels, and draws that are nobody else's."""

from __future__ import annotations

from typing import Any

import pytest

from mutoscope.platform.engine.rollout import RolloutParameters, RolloutPlan, noise_seed
from mutoscope.platform.errors import InvalidParameter

STEPS = 10


def plan(steps: int = STEPS, **given: Any) -> RolloutPlan:
    return RolloutPlan.of(RolloutParameters.model_validate(given).model_dump(), steps)


def test_a_window_is_the_groups() -> None:
    """Drawn from the group's seed alone, it reaches every place but the last step."""
    windows = [plan(group_seed=seed).window for seed in range(200)]
    assert windows == [plan(group_seed=seed).window for seed in range(200)]
    assert {start for start, _ in windows} == set(range(STEPS - 2))
    assert {stop - start for start, stop in windows} == {2}


def test_without_a_groups_seed_the_window_opens_the_schedule() -> None:
    assert plan().window == (0, 2)
    assert plan(steps=2).window == (0, 1)
    assert plan(window_size=4).window == (0, 4)


def test_a_window_may_be_placed() -> None:
    assert plan(window_start=3, window_size=1, group_seed=7).window == (3, 4)
    assert plan(window_start=8, window_size=2).window == (8, 10)


def test_the_ode_has_no_window() -> None:
    assert plan(law="ode", window_start=3).window == (0, 0)
    assert plan(steps=1, law="ode").levels == {1}


def test_what_is_stored() -> None:
    assert plan(window_start=3, window_size=2).levels == {3, 4, 5, STEPS}
    assert plan(window_start=3, levels="all").levels == set(range(STEPS + 1))
    assert [step for step in range(STEPS) if plan(window_start=3).stochastic(step)] == [3, 4]


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"window_start": 9, "window_size": 2}, "window_start=9 .* must end by step 10 of the 10"),
        ({"window_start": 8, "window_size": 2, "law": "cps"}, "window_start=8 .* must end by step 9"),
        ({"window_size": 10}, "window_size=10 .* 10 steps leave room for 9"),
        ({"law": "cps", "noise_scale": 1.5}, "noise_scale=1.5 .* cps takes 1 at most"),
        ({"steps": 1}, "num_inference_steps=1 .* flow-sde needs two steps or more"),
    ],
)
def test_impossible_windows_are_refused(given: dict[str, Any], line: str) -> None:
    with pytest.raises(InvalidParameter, match=line):
        plan(**{"steps": STEPS, **given})


def test_noise_is_drawn_for_a_seed_and_a_step() -> None:
    """No step shares its draw with another, with a neighbouring seed, or with the initial noise."""
    drawn = {noise_seed(seed, step) for seed in range(30) for step in range(30)}
    assert len(drawn) == 900
    assert not drawn & set(range(1000))
    assert all(0 <= seed < 2**63 for seed in drawn)
