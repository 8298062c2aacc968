"""What a rollout is asked for beyond serving: the law of its steps, the window, what is stored. No torch.

A group is the samples of one prompt under one policy. Its stochastic window is the group's: a window drawn
for each sample would bias the group's variance, and training on it collapses. So a window is drawn from the
group's seed, which every request of the group carries, and never from a request's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from mutoscope.platform import ids
from mutoscope.platform.errors import InvalidParameter

_WINDOW_DOMAIN = "mutoscope.rollout-window/1"
_NOISE_DOMAIN = "mutoscope.rollout-noise/1"


class RolloutParameters(BaseModel):
    """What a request may set under the profile `rollout`, beside its card's own parameters."""

    model_config = ConfigDict(extra="forbid")

    law: Literal["ode", "flow-sde", "cps"] = Field(
        "flow-sde", description="How steps inside the window are drawn; outside it they follow the ODE."
    )
    noise_scale: float = Field(
        0.7, gt=0, le=10, allow_inf_nan=False, description="The law's noise scale a; for cps at most 1."
    )
    window_size: int | None = Field(
        None,
        ge=1,
        description="Stochastic steps; left out, two, or the one that a short schedule has room for.",
    )
    window_start: int | None = Field(
        None, ge=0, description="First stochastic step; left out, it is drawn from group_seed, or 0."
    )
    group_seed: int | None = Field(
        None, ge=0, lt=2**63, description="The group's own seed, equal for all its samples."
    )
    levels: Literal["window", "all"] = Field(
        "window", description="Latents to store: the window's and the last, or those of every noise level."
    )


DEFAULTS: Mapping[str, Any] = {
    "guidance_scale": 1.0,
    "do_sample": True,
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "repetition_penalty": 1.0,
}
"""What a rollout takes instead of the recipe's default: the policy is the model, neither its guided blend nor
the likeliest of its tokens."""


@dataclass(frozen=True, slots=True)
class RolloutPlan:
    """A rollout's choices, settled for a schedule.

    Attributes:
        window: first stochastic step, and the step after the last; empty under the ODE.
        levels: indices of the noise levels whose latents are stored.
    """

    law: str
    noise_scale: float
    window: tuple[int, int]
    levels: frozenset[int]

    @classmethod
    def of(cls, parameters: Mapping[str, Any], steps: int) -> RolloutPlan:
        """The plan of resolved parameters over `steps` steps.

        Raises:
            InvalidParameter: the window leaves the schedule, or the law has no density in it.
        """
        law = parameters["law"]
        if law == "cps" and parameters["noise_scale"] > 1:
            raise InvalidParameter(
                "noise_scale", parameters["noise_scale"], "cps takes 1 at most, where all noise is fresh"
            )
        window = (0, 0) if law == "ode" else _window(parameters, steps)
        whole = parameters["levels"] == "all"
        levels = range(steps + 1) if whole else range(window[0], window[1] + 1) if law != "ode" else ()
        return cls(law, parameters["noise_scale"], window, frozenset({*levels, steps}))

    def stochastic(self, step: int) -> bool:
        """Whether the step lies in the window."""
        return self.window[0] <= step < self.window[1]


def _window(parameters: Mapping[str, Any], steps: int) -> tuple[int, int]:
    """First step and end of the window.

    A drawn window keeps clear of the last step, whose noise would stay in the sample. Asked for, `flow-sde`
    takes it; `cps` cannot, as it adds no noise there and so has no density.
    """
    last = steps - 1
    if last < 1:
        raise InvalidParameter("num_inference_steps", steps, f"{parameters['law']} needs two steps or more")
    start, size = parameters["window_start"], parameters["window_size"] or min(2, last)
    if start is not None:
        limit = steps if parameters["law"] == "flow-sde" else last
        if start + size > limit:
            raise InvalidParameter(
                "window_start",
                start,
                f"a window of {size} must end by step {limit} of the {steps} ({parameters['law']})",
            )
        return start, start + size
    if size > last:
        raise InvalidParameter(
            "window_size", size, f"{steps} steps leave room for {last}: the last one stays free of noise"
        )
    seed = parameters["group_seed"]
    start = 0 if seed is None else draw(ids.digest(_WINDOW_DOMAIN, seed)) % (last - size + 1)
    return start, start + size


def noise_seed(seed: int, step: int) -> int:
    """The seed of one step's noise: of the request's seed and the step, and of no other draw."""
    return draw(ids.digest(_NOISE_DOMAIN, {"seed": seed, "step": step}))


def draw(digest: str) -> int:
    """An integer, 0 <= n < 2**63, from a hex digest."""
    return int(digest[:16], 16) >> 1
