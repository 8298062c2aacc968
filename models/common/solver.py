"""How a request is integrated from noise to data: our own Euler ODE step, or UniPC.

Some folders, the released Wan ones among them, name UniPC, a predictor-corrector that remembers earlier
velocities. diffusers keeps that memory in the scheduler object, so each request gets an object of its own; it
lives in the request's LoopState.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from diffusers import UniPCMultistepScheduler
from numpy.typing import NDArray

from mutoscope.platform.engine.sampling import FlowSchedule, ode_step


class Solver(Protocol):
    """Integrates one request from noise to data.

    `sigmas` (steps + 1,) are the noise levels, falling, the last 0; `timesteps` (steps,) what the transformer
    is told: the levels in units of the training schedule. `step` takes the velocity at step `index` and the
    latents there, of one shape, and returns the latents at the next noise level.
    """

    timesteps: torch.Tensor
    sigmas: torch.Tensor

    def step(self, velocity: torch.Tensor, index: int, latents: torch.Tensor) -> torch.Tensor: ...


@dataclass(slots=True)
class EulerSolver:
    """x' = x + (sigma' - sigma) v, in float32 and returned in the velocity's dtype. Stateless."""

    timesteps: torch.Tensor
    sigmas: torch.Tensor

    def step(self, velocity: torch.Tensor, index: int, latents: torch.Tensor) -> torch.Tensor:
        return ode_step(latents, velocity, self.sigmas[index], self.sigmas[index + 1])


@dataclass(slots=True)
class UniPCSolver:
    """A scheduler that belongs to one request. Takes float32."""

    timesteps: torch.Tensor
    sigmas: torch.Tensor
    scheduler: UniPCMultistepScheduler

    def step(self, velocity: torch.Tensor, index: int, latents: torch.Tensor) -> torch.Tensor:
        moved: torch.Tensor = self.scheduler.step(
            velocity, self.timesteps[index], latents, return_dict=False
        )[0]
        return moved


def make_solver(
    schedule: FlowSchedule | Mapping[str, Any],
    steps: int,
    device: torch.device,
    levels: NDArray[np.float64] | None = None,
) -> Solver:
    """A fresh solver for one request: Euler for a flow schedule, UniPC for a scheduler's configuration.

    Args:
        levels: (steps,), what UniPC's schedule shifts in place of levels of its own.
    """
    if isinstance(schedule, FlowSchedule):
        return euler(schedule, schedule.sigmas(steps, spacing="trained"), device)
    scheduler = UniPCMultistepScheduler.from_config(schedule)
    scheduler.set_timesteps(steps, device=device, sigmas=levels)
    # Fine schedules repeat integer timesteps; left to look its index up, UniPC starts at the second of two.
    scheduler.set_begin_index(0)
    return UniPCSolver(scheduler.timesteps, scheduler.sigmas.to(device), scheduler)


def euler(schedule: FlowSchedule, sigmas: Any, device: torch.device) -> EulerSolver:
    """Euler steps over `sigmas`, a float32 array (steps + 1,) of the schedule's making."""
    timesteps = schedule.timesteps(sigmas)
    return EulerSolver(torch.from_numpy(timesteps).to(device), torch.from_numpy(sigmas).to(device))


def train_timesteps(schedule: FlowSchedule | Mapping[str, Any]) -> int:
    """What a noise level of 1 is called."""
    if isinstance(schedule, FlowSchedule):
        return schedule.train_timesteps
    return int(schedule.get("num_train_timesteps", 1000))
