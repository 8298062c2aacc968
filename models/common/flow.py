"""The denoising loop of flow-matching models, in one place: guidance, solver, capture.

A family says what its transformer reads and which one is in charge; everything else is here. A step is one
row for each conditioning, the prompt's first and, under classifier-free guidance, the negative prompt's
second; the solver moves the latents along the velocity they come to. In a rollout the solver is the `Capture`
that draws its steps by a law and records them, so that no other line knows about rollouts.

Tensors have a first axis of 1: a request is one sample.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from mutoscope.models.common.solver import Solver
from mutoscope.platform.engine.capture import Capture
from mutoscope.platform.engine.loop import WEIGHTS, Done, LoopState, Rows, WorkPlan
from mutoscope.platform.engine.request import Output, Profile, Request
from mutoscope.platform.engine.sampling import cfg
from mutoscope.platform.errors import InvalidParameter


@dataclass(slots=True, kw_only=True)
class FlowState(LoopState):
    """Everything one request changes or needs while it is denoised.

    Attributes:
        latents: the sample at the current noise level.
        solver: the request's own; it may remember.
        conditionings: what rows differ in: the prompt's part of a row and, if guided, the negative prompt's.
        keep_step: after how many steps the latents are kept; None: never. kept: they, and their noise level.
    """

    latents: Tensor
    solver: Solver
    conditionings: tuple[Mapping[str, Tensor], ...]
    keep_step: int | None = None
    kept: tuple[Tensor, Tensor] | None = None


FlowStateT = TypeVar("FlowStateT", bound=FlowState)


class FlowLoop(ABC, Generic[FlowStateT]):
    """One plan for each solver step, whose result is the velocity."""

    name = "denoise"

    @abstractmethod
    def init(self, slots: Mapping[str, Any]) -> FlowStateT:
        """The state of one request; see `solving`."""

    @abstractmethod
    def predictor(self, state: FlowStateT) -> tuple[Callable[[Mapping[str, Tensor]], Tensor], float]:
        """Who predicts at the state's step, stacked rows to velocities, and the guidance scale there."""

    @abstractmethod
    def shape(self, state: FlowStateT) -> tuple[Any, ...]:
        """What must agree for two requests' rows to share a call."""

    @abstractmethod
    def inputs(self, state: FlowStateT) -> dict[str, Tensor]:
        """A row of the state's step without its conditioning."""

    def next(self, state: FlowStateT) -> WorkPlan | Done:
        if state.step >= state.total:
            return Done()
        call, scale = self.predictor(state)
        passes = len(state.conditionings)
        rows = Rows(call, passes, partial(self.rows, state), partial(guided, scale))
        return WorkPlan.of_rows("denoise", self.shape(state), rows, cost=float(passes))

    def rows(self, state: FlowStateT) -> list[dict[str, Tensor]]:
        """The passes of the state's step."""
        shared = self.inputs(state)
        return [{**shared, **conditioning} for conditioning in state.conditionings]

    def advance(self, state: FlowStateT, result: Tensor) -> None:
        state.latents = state.solver.step(result, state.step, state.latents)
        state.step += 1
        if state.step == state.keep_step:
            state.kept = (state.latents, state.solver.sigmas[state.step])

    def finalize(self, state: FlowStateT) -> dict[str, Any]:
        return {"latents": state.latents, "capture": state.capture, "kept": state.kept}

    def seek(self, state: FlowStateT, step: int, latents: Tensor) -> None:
        """Put a fresh state before `step`, at recorded latents."""
        state.step, state.latents = step, latents


def guided(scale: float, predicted: Sequence[Tensor]) -> Tensor:
    """The velocity that a step's passes come to: the prompt's, or both under guidance."""
    cond, *uncond = predicted
    return cfg(uncond[0], cond, scale) if uncond else cond


def is_guided(request: Request) -> bool:
    """Whether the request's steps take a second, unconditional pass."""
    return bool(request.parameters["guidance_scale"] > 1)


def solving(slots: Mapping[str, Any], solver: Solver, made: Tensor | None = None) -> dict[str, Any]:
    """A state's `solver` and `capture`: the folder's solver, or a capture of its schedule in a rollout.

    Args:
        made: of latents that are given in part, 1 where the sampler decides; see `Capture`.

    Raises:
        InvalidParameter: a rollout of weights without a name.
    """
    request: Request = slots["request"]
    if request.profile is not Profile.ROLLOUT:
        return {"solver": solver, "capture": None}
    if not slots[WEIGHTS]:
        remedy = (
            "load the instance with weights=, the digest of each component: log-probabilities hold for those"
        )
        raise InvalidParameter("profile", str(request.profile), remedy)
    capture = Capture(request, solver.timesteps, solver.sigmas, made)
    return {"solver": capture, "capture": capture}


def latents_dtype(request: Request, dtype: torch.dtype) -> torch.dtype:
    """The latents' dtype where serving follows the model's; a rollout's are float32 whatever runs it."""
    return torch.float32 if request.profile is Profile.ROLLOUT else dtype


def trajectory(slots: Mapping[str, Any], **conditioning: Tensor) -> dict[str, Output]:
    """The output slot that a rollout adds; nothing when serving.

    Args:
        conditioning: what the transformer read of the prompt, by name.
    """
    capture: Capture | None = slots["capture"]
    return {} if capture is None else {"trajectory": capture.output(slots[WEIGHTS], **conditioning)}
