"""Content-adaptive compute: steps whose velocity is known well enough are taken without the model.

Between two noise levels the velocity of a flow changes smoothly, and how fast is seen from the last two that
were computed. While its predicted relative change stays below a threshold, the velocity of the next step is
extrapolated along the line through the two, and the transformer is left out. When the picture that would come
out now, x̂₀ = x − σv, is predicted to stay the same to the end, the end is taken at once.

    rate of v     r = mean|v − v_before| / mean|v_before| / (σ_before − σ)
    reuse at σ'   while r·(σ − σ') < reuse_threshold, at most max_reuse times in a row
    exit          when the rate of x̂₀, times the σ that is left, is below exit_threshold

Everything is decided from the request's own state, so interleaving and batching change nothing. Thresholds
of 0 never hold: the loop is then its base, bit for bit. Related: TeaCache (arXiv 2411.19108) and cache-dit,
which decide on features inside the model; this looks at predictions only, and so works for any flow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from mutoscope.models.common.flow import FlowLoop, FlowState
from mutoscope.platform.engine.loop import Done, LoopState, WorkPlan


@dataclass(frozen=True, slots=True)
class Rules:
    """When to leave the model out; see the module."""

    reuse_threshold: float
    max_reuse: int
    exit_threshold: float


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """A computed velocity, and the data it points at.

    Attributes:
        by: who predicted; another transformer's velocity is no neighbour of this one.
    """

    sigma: float
    velocity: Tensor
    data: Tensor
    by: Callable[..., Any]


@dataclass(slots=True, kw_only=True)
class ReuseState(LoopState):
    """The inner loop's state, and what was seen of its velocities.

    Attributes:
        last, before: the last two predictions by one predictor.
        computed: steps the model was run for.
        exited: the step at whose end the sample was found converged, counted from 1.
    """

    inner: FlowState
    rules: Rules
    last: Prediction | None = None
    before: Prediction | None = None
    computed: int = 0
    exited: int | None = None

    def see(self, prediction: Prediction) -> None:
        same = self.last is not None and self.last.by == prediction.by
        self.before, self.last = (self.last if same else None), prediction
        self.computed += 1

    @property
    def report(self) -> dict[str, Any]:
        """Steps of the schedule, those the model ran for, those it was left out of, and an early exit."""
        return {
            "steps": self.total,
            "computed_steps": self.computed,
            "saved_steps": self.total - self.computed,
            "exited_after_step": self.exited,
        }


class ReusingLoop:
    """A flow loop that is stepped without its model where the rules allow."""

    def __init__(self, inner: FlowLoop[Any], rules: Callable[[Mapping[str, Any]], Rules]) -> None:
        self.name, self.inner, self.rules = inner.name, inner, rules

    def init(self, slots: Mapping[str, Any]) -> ReuseState:
        inner = self.inner.init(slots)
        return ReuseState(total=inner.total, inner=inner, rules=self.rules(slots))

    def next(self, state: ReuseState) -> WorkPlan | Done:
        return self.inner.next(state.inner)

    def advance(self, state: ReuseState, result: Tensor) -> None:
        inner = state.inner
        by, _ = self.inner.predictor(inner)
        sigma = _sigma(inner)
        velocity = result.float()
        state.see(Prediction(sigma, velocity, inner.latents.float() - sigma * velocity, by))
        self.inner.advance(inner, result)
        if self._converged(state):
            assert state.last is not None
            state.exited = inner.step
            inner.latents, inner.step = state.last.data.to(inner.latents.dtype), inner.total
        for _ in range(state.rules.max_reuse):
            if inner.step == inner.total or (known := self._known(state)) is None:
                break
            self.inner.advance(inner, known.to(result.dtype))
        state.step = inner.step

    def finalize(self, state: ReuseState) -> dict[str, Any]:
        return {**self.inner.finalize(state.inner), "report": state.report}

    def _converged(self, state: ReuseState) -> bool:
        """Whether the data that the last prediction points at are final. The last step needs no asking."""
        last, before = state.last, state.before
        if last is None or before is None or state.inner.step == state.inner.total:
            return False
        left = last.sigma / (before.sigma - last.sigma)
        return relative_change(last.data, before.data) * left < state.rules.exit_threshold

    def _known(self, state: ReuseState) -> Tensor | None:
        """The velocity at the coming step, if it is known well enough."""
        last, before = state.last, state.before
        if last is None or before is None or self.inner.predictor(state.inner)[0] != last.by:
            return None
        ahead = (last.sigma - _sigma(state.inner)) / (before.sigma - last.sigma)
        if not relative_change(last.velocity, before.velocity) * ahead < state.rules.reuse_threshold:
            return None
        return last.velocity + ahead * (last.velocity - before.velocity)


def relative_change(now: Tensor, before: Tensor) -> float:
    """mean|now − before| / mean|before|."""
    return float((now - before).abs().mean() / before.abs().mean())


def _sigma(state: FlowState) -> float:
    return float(state.solver.sigmas[state.step])
