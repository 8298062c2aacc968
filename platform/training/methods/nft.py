"""DiffusionNFT, arXiv 2509.16117: learn from finished samples, without likelihoods.

A sample x₀ of the policy *old* is noised afresh to x_σ = (1−σ)x₀ + σε. Two velocities are made of the one
being trained, v, and old's,

    v⁺ = v_old + β(v − v_old)          v⁻ = v_old − β(v − v_old)

and each is asked for x₀ in proportion to the sample's optimality r in [0, 1] and 1 − r:

    L = r·mean(x̂₀⁺ − x₀)²/w⁺ + (1−r)·mean(x̂₀⁻ − x₀)²/w⁻,    x̂₀ = x_σ − σv,    w = mean|x̂₀ − x₀|, a fact

Written about v_old the two are equal to the last bit where v is v_old, and there a sample of r = ½ has
exactly no gradient. Elsewhere it has one, back towards v_old: leave samples out that have nothing to teach.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from mutoscope.platform.training.methods.ppo import mean_over

LEAST_WEIGHT = 1e-5
"""Of w, where a prediction is exact."""


@dataclass(frozen=True, slots=True, eq=False)
class NftTerm:
    """The loss of a batch, (B,), and the weights it was taken with, which have no gradient.

    Attributes:
        loss_B: to be minimised. With the same weights given, any other implementation of the formula has
            this value and this gradient.
        weights: (w⁺, w⁻), each (B,).
        drift_B: mean (v − v_old)², how far the policy has gone from old.
    """

    loss_B: Tensor
    weights: tuple[Tensor, Tensor]
    drift_B: Tensor

    @property
    def loss(self) -> Tensor:
        """The mean over the batch."""
        return self.loss_B.mean()


def nft_loss(
    v: Tensor,
    v_old: Tensor,
    x0: Tensor,
    x_sigma: Tensor,
    sigma: float | Tensor,
    r_B: Tensor,
    beta: float,
    *,
    made: Tensor | None = None,
    weights: tuple[Tensor, Tensor] | None = None,
) -> NftTerm:
    """The loss of a batch of noised samples; differentiable in `v` alone.

    At σ = 1 errors are the velocity's own; towards σ = 0 they vanish with σ, so that levels close to 0 teach
    next to nothing.

    Args:
        v, v_old: (B, …), the policy's velocity and old's at `x_sigma`.
        x0: (B, …), the finished samples, in the convention of the latents.
        x_sigma: (B, …), as `noised` makes them.
        sigma: in (0, 1], a number or (B,).
        r_B: optimality, in [0, 1].
        beta: > 0, how far v⁺ and v⁻ are apart.
        made: 1 for elements to take means over and 0 for others, broadcastable; None: all of them.
        weights: (w⁺, w⁻), to take the loss with; None: those of this point.
    """
    x0, x_sigma, r_B = x0.detach().float(), x_sigma.detach().float(), r_B.detach().float()
    v_old = v_old.detach().float()
    change, level = v.float() - v_old, per_sample(sigma, x0)
    positive = x_sigma - level * (v_old + beta * change) - x0
    negative = x_sigma - level * (v_old - beta * change) - x0
    if weights is None:
        weights = _weight(positive, made), _weight(negative, made)
    loss_B = r_B * mean_over(positive.square(), made) / weights[0]
    loss_B = loss_B + (1 - r_B) * mean_over(negative.square(), made) / weights[1]
    return NftTerm(loss_B, weights, drift(v.detach(), v_old, made))


def drift(v: Tensor, other: Tensor, made: Tensor | None = None) -> Tensor:
    """mean (v − v')² (B,): how far a policy is from another, which is a fact; the penalty where that one is a
    reference. Differentiable in `v`.
    """
    return mean_over((v.float() - other.detach().float()).square(), made)


def optimality(adv_B: Tensor, adv_max: float) -> Tensor:
    """r = clip(½ + A/(2A_max), 0, 1), (B,): how much a sample is to be imitated rather than avoided."""
    return (0.5 + adv_B.float() / (2 * adv_max)).clamp(0, 1)


def noised(x0: Tensor, noise: Tensor, sigma: float | Tensor, made: Tensor | None = None) -> Tensor:
    """x_σ = (1−σ)x₀ + σε, float32, (B, …).

    Args:
        sigma: a number or (B,).
        made: 0 where a latent is given: it stays as it is in `x0`.
    """
    level = per_sample(sigma, x0)
    x_sigma = (1 - level) * x0.float() + level * noise.float()
    return x_sigma if made is None else torch.where(made.expand_as(x_sigma) > 0, x_sigma, x0.float())


def decay(old: Mapping[str, Tensor], theta: Mapping[str, Tensor], d: float) -> dict[str, Tensor]:
    """d·old + (1−d)·θ by name: the policy that samples follows the one that learns.

    Products and sum are float32, results of old's dtype.

    Args:
        d: in [0, 1].
    """
    return {
        name: tensor.float().mul(d).add(theta[name].detach().float(), alpha=1 - d).to(tensor.dtype)
        for name, tensor in old.items()
    }


def per_sample(value: float | Tensor, like: Tensor) -> Tensor:
    """A number or one for each sample, (B,), as float32 that broadcasts to (B, …)."""
    value = torch.as_tensor(value, dtype=torch.float32, device=like.device)
    return value.reshape(-1, *[1] * (like.dim() - 1))


def _weight(error: Tensor, made: Tensor | None) -> Tensor:
    return mean_over(error.detach().abs(), made).clamp(min=LEAST_WEIGHT)
