"""When the model is left out, on flows whose velocity is known in closed form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from mutoscope.models.common.flow import FlowLoop, FlowState
from mutoscope.models.common.reuse import ReuseState, ReusingLoop, Rules
from mutoscope.models.common.solver import euler
from mutoscope.platform.engine.loop import Done, WorkPlan
from mutoscope.platform.engine.sampling import FlowSchedule

STEPS = 20
START = torch.linspace(-1, 1, 6).view(1, 6)

Field = Callable[[Tensor, float], Tensor]


class Flow(FlowLoop[FlowState]):
    """A transformer that answers with a given field v(x, sigma), and counts how often it is asked."""

    def __init__(self, field: Field, boundary: float = 0.0) -> None:
        self.field, self.boundary, self.asked = field, boundary, 0
        self.low = Low(self)

    def init(self, slots: Mapping[str, Any]) -> FlowState:
        schedule = FlowSchedule()
        solver = euler(schedule, schedule.sigmas(STEPS), torch.device("cpu"))
        return FlowState(total=STEPS, latents=START, solver=solver, conditionings=({},))

    def predictor(self, state: FlowState) -> tuple[Callable[[Mapping[str, Tensor]], Tensor], float]:
        high = float(state.solver.sigmas[state.step]) >= self.boundary
        return (self.predict if high else self.low.predict), 1.0

    def shape(self, state: FlowState) -> tuple[int, ...]:
        return tuple(state.latents.shape[1:])

    def inputs(self, state: FlowState) -> dict[str, Tensor]:
        return {"x": state.latents, "sigma": state.solver.sigmas[state.step].expand(1)}

    def predict(self, rows: Mapping[str, Tensor]) -> Tensor:
        self.asked += 1
        return self.field(rows["x"], float(rows["sigma"]))


class Low:
    """A second transformer, which answers with twice the velocity."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow

    def predict(self, rows: Mapping[str, Tensor]) -> Tensor:
        return 2 * self.flow.predict(rows)


def linear(x: Tensor, sigma: float) -> Tensor:
    """A velocity linear in σ, whatever the sample."""
    return torch.ones_like(x) + 0.5 * sigma


def bent(x: Tensor, sigma: float) -> Tensor:
    return torch.ones_like(x) + torch.sin(torch.tensor(6 * sigma)) + 0.1 * x


def run(flow: Flow, rules: Rules) -> tuple[Tensor, ReuseState]:
    loop = ReusingLoop(flow, lambda slots: rules)
    state = loop.init({})
    while isinstance(plan := loop.next(state), WorkPlan):
        loop.advance(state, plan.run())
    assert isinstance(plan, Done)
    assert state.step == state.total == STEPS
    assert flow.asked == state.computed == loop.finalize(state)["report"]["computed_steps"]
    return loop.finalize(state)["latents"], state


def plain(flow: Flow) -> Tensor:
    state = flow.init({})
    while isinstance(plan := flow.next(state), WorkPlan):
        flow.advance(state, plan.run())
    return flow.finalize(state)["latents"]


@pytest.mark.parametrize("field", [linear, bent])
def test_thresholds_of_zero_are_the_base(field: Field) -> None:
    made, state = run(Flow(field), Rules(0.0, 3, 0.0))
    assert torch.equal(made, plain(Flow(field)))
    assert (state.computed, state.exited) == (STEPS, None)


@pytest.mark.parametrize("max_reuse", [1, 3, 100])
def test_a_linear_velocity_is_extrapolated_exactly(max_reuse: int) -> None:
    """Two steps are computed, then one in max_reuse + 1: 20 = 2 + 18 steps in groups led by reuse."""
    made, state = run(Flow(linear), Rules(10.0, max_reuse, 0.0))
    torch.testing.assert_close(made, plain(Flow(linear)), rtol=0, atol=1e-5)
    assert state.computed == {1: 11, 3: 6, 100: 2}[max_reuse]


def test_a_lower_threshold_computes_more_and_strays_less() -> None:
    expected = plain(Flow(bent))
    runs = [run(Flow(bent), Rules(threshold, 4, 0.0)) for threshold in (0.5, 0.2, 0.05, 0.01)]
    computed = [state.computed for _, state in runs]
    errors = [float((made - expected).abs().max()) for made, _ in runs]
    assert computed == sorted(computed)
    assert computed[0] < computed[-1] <= STEPS
    assert errors[-1] < errors[0] / 10


@pytest.mark.parametrize(("times", "step"), [(0.99, 2), (1.01, 3)])
def test_a_step_is_reused_only_below_the_threshold(times: float, step: int) -> None:
    """v(1) = 1.5 and v(0.95) = 1.475: a relative change of 1/60, and the next step is as long."""
    loop = ReusingLoop(Flow(linear), lambda slots: Rules(times / 60, 1, 0.0))
    state = loop.init({})
    for _ in range(2):
        plan = loop.next(state)
        assert isinstance(plan, WorkPlan)
        loop.advance(state, plan.run())
    assert state.step == step


def test_a_converged_sample_is_finished_at_once() -> None:
    """A velocity (x − x₀)/σ points at the same data from everywhere: after two looks nothing is left."""
    data = torch.full((1, 6), 0.25)

    def settled(x: Tensor, sigma: float) -> Tensor:
        return (x - data) / sigma

    made, state = run(Flow(settled), Rules(0.0, 1, 0.01))
    assert (state.computed, state.exited) == (2, 2)
    torch.testing.assert_close(made, data, rtol=0, atol=1e-6)
    assert run(Flow(settled), Rules(0.0, 1, 0.0))[1].computed == STEPS


def test_a_sample_that_still_changes_is_not_finished() -> None:
    assert run(Flow(bent), Rules(0.0, 1, 0.01))[1].exited is None


def test_the_other_transformers_velocity_is_no_neighbour() -> None:
    """At the boundary the velocity doubles; what the first transformer said is neither used nor compared."""
    made, state = run(Flow(linear, boundary=0.5), Rules(10.0, 100, 0.0))
    torch.testing.assert_close(made, plain(Flow(linear, boundary=0.5)), rtol=0, atol=1e-5)
    assert state.computed == 4  # two looks at each


def test_a_velocity_that_vanished_is_computed() -> None:
    """0/0 is no small change."""
    assert run(Flow(lambda x, sigma: torch.zeros_like(x)), Rules(10.0, 3, 0.0))[1].computed == STEPS
