"""The cost model: seconds for every kind of step, learnt from measurements."""

from __future__ import annotations

import random

import pytest

from mutoscope.platform.engine import cost
from mutoscope.platform.engine.cost import PRIOR_RATE, CostModel, bounded

SHAPE = (16, 32)


def test_declared_cost_counts_until_something_is_measured() -> None:
    model = CostModel()
    assert model.estimate("flux", "denoise", SHAPE, 2, cost=2.0) == 2.0 * PRIOR_RATE


def test_a_measured_kind_gives_the_rate_for_other_shapes() -> None:
    model = CostModel()
    model.observe("flux", "denoise", SHAPE, 1, cost=1.0, seconds=0.25)
    # 0.25 s for a cost of 1, so 0.5 s for a guided step of another shape; another card knows nothing of it.
    assert model.estimate("flux", "denoise", (64, 64), 2, cost=2.0) == 0.5
    assert model.estimate("wan", "denoise", SHAPE, 1, cost=1.0) == PRIOR_RATE


def test_the_very_shape_and_number_of_rows_count_most() -> None:
    model = CostModel()
    model.observe("flux", "denoise", SHAPE, 1, cost=1.0, seconds=0.008)
    model.observe("flux", "denoise", SHAPE, 8, cost=8.0, seconds=0.024)
    assert model.estimate("flux", "denoise", SHAPE, 1, cost=1.0) == 0.008
    assert model.estimate("flux", "denoise", SHAPE, 8, cost=8.0) == 0.024


def test_one_hiccup_moves_nothing_and_a_lasting_change_is_followed() -> None:
    model = CostModel()

    def measure(seconds: float, times: int) -> float:
        for _ in range(times):
            model.observe("flux", "denoise", SHAPE, 1, cost=1.0, seconds=seconds)
        return model.estimate("flux", "denoise", SHAPE, 1, cost=1.0)

    assert measure(0.9, 1) == 0.9  # the first call warms up
    assert measure(0.01, 1) == 0.01
    assert measure(0.01, 6) == 0.01
    assert measure(5.0, 1) == 0.01
    assert measure(0.02, 5) == 0.02


def test_equal_measurements_give_equal_estimates() -> None:
    def learnt() -> list[float]:
        draw, model, estimates = random.Random(3), CostModel(), []
        for _ in range(200):
            shape, rows = (draw.randint(1, 4),), draw.randint(1, 4)
            model.observe("c", "k", shape, rows, cost=float(rows), seconds=draw.expovariate(100))
            estimates.append(model.estimate("c", "k", shape, rows, cost=float(rows)))
        return estimates

    assert learnt() == learnt()


def test_a_clock_that_stands_still_teaches_nothing() -> None:
    model = CostModel()
    model.observe("flux", "denoise", SHAPE, 1, cost=1.0, seconds=0.0)
    assert model.estimate("flux", "denoise", SHAPE, 1, cost=1.0) == PRIOR_RATE


def test_shapes_are_bounded() -> None:
    model = CostModel()
    for number in range(cost._SHAPES + 10):
        model.observe("c", "k", (number,), 1, cost=1.0, seconds=1.0)
    assert len(model._shapes) == cost._SHAPES


@pytest.mark.parametrize(("seconds", "charged"), [(0.5, 0.5), (100.0, 4.0), (0.001, 0.25), (0.0, 1.0)])
def test_a_single_measurement_is_charged_within_reason(seconds: float, charged: float) -> None:
    assert bounded(seconds, estimate=1.0) == charged
