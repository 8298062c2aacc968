"""Flow matching: the noise schedule, the ODE step and classifier-free guidance.

Convention: x_sigma = (1 - sigma) x0 + sigma eps and v = eps - x0, with sigma falling from 1 (noise) to 0
(data). The schedule is computed in NumPy and without torch, so that a folder's scheduler configuration can be
checked anywhere; the two update rules are plain arithmetic on tensors.

The numbers equal those of diffusers' `FlowMatchEulerDiscreteScheduler` bit for bit, and so does the precision
each step is computed in: a schedule given explicitly (`"linear"`) is shifted in float32, one derived from the
training range (`"trained"`) in float64 and rounded once at the end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from mutoscope.platform.errors import InvalidFolder

if TYPE_CHECKING:
    from torch import Tensor

Spacing = Literal["linear", "trained"]

_UNSUPPORTED = (
    "use_karras_sigmas",
    "use_exponential_sigmas",
    "use_beta_sigmas",
    "invert_sigmas",
    "stochastic_sampling",
)


@dataclass(frozen=True, slots=True)
class FlowSchedule:
    """How a folder turns a number of steps into noise levels; the meaningful part of its
    `scheduler_config.json`.

    Attributes:
        shift: s in sigma <- s sigma / (1 + (s - 1) sigma); ignored when `dynamic`.
        dynamic: the shift grows with the number of image tokens (FLUX.1-dev).
        base_tokens, max_tokens, base_shift, max_shift: the line through which `dynamic` interpolates mu.
        kind: how mu bends the schedule, "exponential" (e^mu) or "linear" (mu).
        terminal: stretch the schedule so that the last nonzero sigma equals this.
        train_timesteps: what sigma = 1 is called when a model is told its timestep.
    """

    shift: float = 1.0
    dynamic: bool = False
    base_tokens: int = 256
    max_tokens: int = 4096
    base_shift: float = 0.5
    max_shift: float = 1.15
    kind: Literal["exponential", "linear"] = "exponential"
    terminal: float | None = None
    train_timesteps: int = 1000

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> FlowSchedule:
        """Read a `FlowMatchEulerDiscreteScheduler` configuration.

        Raises:
            InvalidFolder: for an option that changes the schedule in a way not implemented here.
        """
        for option in _UNSUPPORTED:
            if config.get(option):
                raise InvalidFolder(
                    f"scheduler option {option}={config[option]!r} is not supported: set it to false"
                )
        kind = config.get("time_shift_type", "exponential")
        if kind not in ("exponential", "linear"):
            raise InvalidFolder(
                f"scheduler option time_shift_type={kind!r} is unknown: use exponential or linear"
            )
        return cls(
            shift=float(config.get("shift", 1.0)),
            dynamic=bool(config.get("use_dynamic_shifting", False)),
            base_tokens=int(config.get("base_image_seq_len") or 256),
            max_tokens=int(config.get("max_image_seq_len") or 4096),
            base_shift=_or(config.get("base_shift"), 0.5),
            max_shift=_or(config.get("max_shift"), 1.15),
            kind=kind,
            terminal=config.get("shift_terminal") or None,
            train_timesteps=int(config.get("num_train_timesteps", 1000)),
        )

    def sigmas(
        self, steps: int, *, tokens: int | None = None, spacing: Spacing = "linear"
    ) -> NDArray[np.float32]:
        """Noise levels from 1 down to 0, float32 of shape (steps + 1,).

        Args:
            steps: number of ODE steps, at least 1.
            tokens: length of the image token sequence; required by a dynamic schedule.
            spacing: "linear" divides 1 .. 1/steps evenly before the shift, as FluxPipeline asks for;
                "trained" divides the scheduler's own training range, as pipelines do that pass only a number
                of steps.
        """
        if spacing == "linear":
            levels = np.linspace(1.0, 1 / steps, steps).astype(np.float32)
        else:
            levels = self._trained_range(steps)
        levels = self._time_shift(levels, tokens) if self.dynamic else _shift(self.shift, levels)
        if self.terminal is not None:
            left = 1 - levels
            levels = 1 - left / (left[-1] / (1 - self.terminal))
        return np.append(levels.astype(np.float32), np.float32(0.0))

    def timesteps(self, sigmas: NDArray[np.float32]) -> NDArray[np.float32]:
        """What the model is told at each step, float32 of shape (steps,): sigma x train_timesteps."""
        return sigmas[:-1] * np.float32(self.train_timesteps)

    def mu(self, tokens: int) -> float:
        """The dynamic shift for `tokens` image tokens: linear between the two calibrated lengths."""
        slope = (self.max_shift - self.base_shift) / (self.max_tokens - self.base_tokens)
        return tokens * slope + (self.base_shift - slope * self.base_tokens)

    def _trained_range(self, steps: int) -> NDArray[Any]:
        """The scheduler's training range, shifted when it was made: a static shift applies twice."""
        trained = np.arange(self.train_timesteps, 0, -1, dtype=np.float32) / np.float32(self.train_timesteps)
        if not self.dynamic:
            trained = _shift(self.shift, trained)
        first, last = float(trained[0]), float(trained[-1])
        return (
            np.linspace(first * self.train_timesteps, last * self.train_timesteps, steps)
            / self.train_timesteps
        )

    def _time_shift(self, levels: NDArray[Any], tokens: int | None) -> NDArray[Any]:
        if tokens is None:
            raise ValueError("a dynamic schedule needs the number of image tokens")
        mu = self.mu(tokens)
        weight = math.exp(mu) if self.kind == "exponential" else mu
        shifted: NDArray[Any] = weight / (weight + (1 / levels - 1) ** 1.0)
        return shifted


def _or(value: Any, default: float) -> float:
    return default if value is None else float(value)


def _shift(shift: float, levels: NDArray[Any]) -> NDArray[Any]:
    shifted: NDArray[Any] = shift * levels / (1 + (shift - 1) * levels)
    return shifted


def ode_step(x: Tensor, v: Tensor, sigma: Tensor, sigma_next: Tensor) -> Tensor:
    """Euler step x' = x + (sigma' - sigma) v, computed in float32 and returned in the velocity's dtype.

    Args:
        x, v: latents and velocity, any equal shape.
        sigma, sigma_next: current and next noise level, 0-dim float32 tensors on the latents' device.
    """
    return (x.float() + (sigma_next - sigma) * v).to(v.dtype)


def cfg(uncond: Tensor, cond: Tensor, scale: float) -> Tensor:
    """Classifier-free guidance u + g (c - u), in this order of operations."""
    return uncond + scale * (cond - uncond)
