"""Solvers against diffusers' schedulers, on a velocity field with a known flow."""

from __future__ import annotations

import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler, UniPCMultistepScheduler

from mutoscope.models.common.solver import EulerSolver, Solver, make_solver, train_timesteps
from mutoscope.platform.engine.sampling import FlowSchedule

CPU = torch.device("cpu")
DATA = torch.tensor([[0.5, -2.0, 3.0]])


def integrate(solver: Solver, noise: torch.Tensor) -> torch.Tensor:
    """Follow v = eps - x0 towards `DATA`, read off the noisy sample itself: v = (x - x0) / sigma."""
    latents = noise
    for index, timestep in enumerate(solver.timesteps):
        latents = solver.step((latents - DATA) / (timestep / 1000), index, latents)
    return latents


def reference(scheduler: object, steps: int, noise: torch.Tensor) -> torch.Tensor:
    scheduler.set_timesteps(steps)
    latents = noise
    for timestep in scheduler.timesteps:
        velocity = (latents - DATA) / (timestep / 1000)
        latents = scheduler.step(velocity, timestep, latents, return_dict=False)[0]
    return latents


@pytest.mark.parametrize("steps", [1, 2, 20, 50])
@pytest.mark.parametrize("shift", [1.0, 3.0, 12.0])
def test_euler_equals_the_scheduler_and_arrives(shift: float, steps: int) -> None:
    scheduler = FlowMatchEulerDiscreteScheduler(shift=shift)
    noise = torch.randn(1, 3, generator=torch.Generator().manual_seed(0))
    solver = make_solver(FlowSchedule.from_config(scheduler.config), steps, CPU)
    assert isinstance(solver, EulerSolver)
    arrived = integrate(solver, noise)
    assert torch.equal(arrived, reference(scheduler, steps, noise))
    torch.testing.assert_close(arrived, DATA, rtol=0, atol=1e-4)


@pytest.mark.parametrize("steps", [1, 2, 20, 50])
def test_unipc_equals_the_scheduler(steps: int) -> None:
    config = UniPCMultistepScheduler(
        prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0
    ).config
    noise = torch.randn(1, 3, generator=torch.Generator().manual_seed(0))
    expected = reference(UniPCMultistepScheduler.from_config(config), steps, noise)
    assert torch.equal(integrate(make_solver(config, steps, CPU), noise), expected)


def test_unipc_takes_every_step_of_a_schedule_with_repeated_timesteps() -> None:
    """With a large shift and many steps, noise levels near 1 share an integer timestep."""
    scheduler = UniPCMultistepScheduler(
        prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=12.0
    )
    noise = torch.randn(1, 3, generator=torch.Generator().manual_seed(0))
    solver = make_solver(scheduler.config, 200, CPU)
    assert int(solver.timesteps[0]) == int(solver.timesteps[1])
    torch.testing.assert_close(integrate(solver, noise), DATA, rtol=0, atol=2e-2)


def test_the_boundary_is_measured_in_training_steps() -> None:
    assert train_timesteps(FlowSchedule(train_timesteps=500)) == 500
    assert train_timesteps({"num_train_timesteps": 250}) == 250
