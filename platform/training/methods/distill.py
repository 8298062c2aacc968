"""A student of few steps from its teacher's trajectories: the velocity that leaps from level to level.

The teacher samples by the ODE and its latents are kept at the levels of the student's schedule. A student
that predicts the chord between two of them, v* = (x_from − x_to)/(σ_from − σ_to), lands with one Euler step
where its teacher came with many. With the end point, σ_to = 0, the chord is the velocity of a straight flow
from noise to the teacher's sample (rectified flow, arXiv 2209.03003); with levels between it is progressive
distillation (arXiv 2202.00512).

A chord over a single step of the teacher is the teacher's own velocity: for a student that starts as a copy
of its teacher, nothing is to be learned from it.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from mutoscope.platform.training.methods.nft import per_sample
from mutoscope.platform.training.methods.ppo import mean_over

Space = Literal["velocity", "x0"]
"""What errors are measured in: the velocity, or where it lands, which weighs them by (σ_from − σ_to)²."""


def chord_velocity(
    x_from: Tensor, x_to: Tensor, sigma_from: float | Tensor, sigma_to: float | Tensor
) -> Tensor:
    """v* = (x_from − x_to)/(σ_from − σ_to), float32, (B, …).

    Args:
        x_from, x_to: (B, …), a teacher's latents at two levels.
        sigma_from, sigma_to: numbers or (B,), falling.

    Raises:
        ValueError: the levels do not fall.
    """
    span = per_sample(sigma_from, x_from) - per_sample(sigma_to, x_from)
    if not bool((span > 0).all()):
        raise ValueError("a chord leads from a noise level to a lower one")
    return (x_from.float() - x_to.float()) / span


def distill_loss(
    v: Tensor,
    x_from: Tensor,
    x_to: Tensor,
    sigma_from: float | Tensor,
    sigma_to: float | Tensor = 0.0,
    *,
    space: Space = "velocity",
    made: Tensor | None = None,
) -> Tensor:
    """Mean squared error (B,) of the student's velocity at `x_from`; differentiable in it.

    Args:
        v: (B, …), the student's.
        space: ``x0`` asks that the step land on `x_to`; named for the end point, where that is x̂₀ = x − σv.
        made: 1 for elements to take the mean over and 0 for others, broadcastable; None: all of them.
    """
    error = v.float() - chord_velocity(x_from, x_to, sigma_from, sigma_to).detach()
    if space == "x0":
        error = error * (per_sample(sigma_from, x_from) - per_sample(sigma_to, x_from))
    return mean_over(error.square(), made)
