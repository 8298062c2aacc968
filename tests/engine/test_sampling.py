"""The schedule and the update rules against diffusers' scheduler, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from diffusers.pipelines.flux.pipeline_flux import calculate_shift

from mutoscope.platform.engine.sampling import FlowSchedule, cfg, ode_step
from mutoscope.platform.errors import InvalidFolder

CONFIGS: dict[str, dict[str, Any]] = {
    "unshifted": {},
    "shift 3": {"shift": 3.0},
    "shift 5, terminal": {"shift": 5.0, "shift_terminal": 0.02},
    "dynamic": {"use_dynamic_shifting": True, "shift": 3.0},
    "dynamic, own line": {
        "use_dynamic_shifting": True,
        "base_shift": 0.95,
        "max_shift": 2.05,
        "base_image_seq_len": 1024,
        "max_image_seq_len": 4096,
    },
    "dynamic, linear": {"use_dynamic_shifting": True, "time_shift_type": "linear"},
    "dynamic, terminal": {"use_dynamic_shifting": True, "shift_terminal": 0.1},
    "100 training steps": {"num_train_timesteps": 100, "shift": 2.0},
}


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("steps", [1, 2, 7, 28, 50])
@pytest.mark.parametrize("tokens", [16, 1024, 4096])
def test_linear_schedule_equals_what_flux_pipeline_sets(name: str, steps: int, tokens: int) -> None:
    theirs = FlowMatchEulerDiscreteScheduler(**CONFIGS[name])
    keys = ("base_image_seq_len", "max_image_seq_len", "base_shift", "max_shift")
    mu = calculate_shift(tokens, *(theirs.config[key] for key in keys))
    with np.errstate(divide="ignore", invalid="ignore"):
        theirs.set_timesteps(steps, sigmas=np.linspace(1.0, 1 / steps, steps), mu=mu)
        ours = FlowSchedule.from_config(theirs.config)
        sigmas = ours.sigmas(steps, tokens=tokens)
    np.testing.assert_array_equal(sigmas, theirs.sigmas.numpy())
    np.testing.assert_array_equal(ours.timesteps(sigmas), theirs.timesteps.numpy())


@pytest.mark.parametrize("name", ["unshifted", "shift 3", "dynamic", "100 training steps"])
@pytest.mark.parametrize("steps", [1, 2, 7, 50])
def test_trained_schedule_equals_what_a_bare_number_of_steps_sets(name: str, steps: int) -> None:
    theirs = FlowMatchEulerDiscreteScheduler(**CONFIGS[name])
    ours = FlowSchedule.from_config(theirs.config)
    theirs.set_timesteps(steps, mu=ours.mu(900))
    sigmas = ours.sigmas(steps, tokens=900, spacing="trained")
    np.testing.assert_array_equal(sigmas, theirs.sigmas.numpy())
    np.testing.assert_array_equal(ours.timesteps(sigmas), theirs.timesteps.numpy())


def test_shift_by_hand() -> None:
    # linear levels of 4 steps are 1, 3/4, 1/2, 1/4; with s = 3, s x / (1 + 2 x) gives 1, 9/10, 3/4, 1/2
    np.testing.assert_allclose(FlowSchedule(shift=3.0).sigmas(4), [1, 0.9, 0.75, 0.5, 0], rtol=1e-6)


def test_dynamic_shift_by_hand() -> None:
    schedule = FlowSchedule(dynamic=True)
    assert schedule.mu(256) == pytest.approx(0.5)
    assert schedule.mu(4096) == pytest.approx(1.15)
    assert schedule.mu(2176) == pytest.approx(0.825)  # halfway


def test_a_dynamic_schedule_needs_the_number_of_tokens() -> None:
    with pytest.raises(ValueError, match="number of image tokens"):
        FlowSchedule(dynamic=True).sigmas(4)


@pytest.mark.parametrize(
    "option",
    [
        {"use_karras_sigmas": True},
        {"use_exponential_sigmas": True},
        {"use_beta_sigmas": True},
        {"invert_sigmas": True},
        {"stochastic_sampling": True},
        {"time_shift_type": "cubic"},
    ],
    ids=lambda option: next(iter(option)),
)
def test_options_that_would_change_the_schedule_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(InvalidFolder, match=next(iter(option))):
        FlowSchedule.from_config(option)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_ode_step_equals_the_schedulers(dtype: torch.dtype) -> None:
    theirs = FlowMatchEulerDiscreteScheduler(shift=3.0)
    theirs.set_timesteps(6)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 5, 4, generator=generator).to(dtype)
    for at, timestep in enumerate(theirs.timesteps):
        v = torch.randn(2, 5, 4, generator=generator).to(dtype)
        expected = theirs.step(v, timestep, x, return_dict=False)[0]
        x = ode_step(x, v, theirs.sigmas[at], theirs.sigmas[at + 1])
        assert x.dtype == dtype
        assert torch.equal(x, expected)


def test_guidance() -> None:
    uncond, cond = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 1.0])
    assert cfg(uncond, cond, 3.0).tolist() == [7.0, -1.0]  # 1 + 3 (3 - 1), 2 + 3 (1 - 2)
    assert torch.equal(cfg(uncond, cond, 1.0), cond)
