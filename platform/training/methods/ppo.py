"""Clipped policy gradient of a step's log-probability, and what keeps a policy near the one that sampled.

Log-probabilities are means over a sample's elements (see `sde`), so a ratio hugs 1 and clip ranges are tiny:
1e-4 and below at the size of a picture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

EXPONENT_LIMIT = 10.0
"""Log-ratios are clipped to ± this before they are exponentiated; beyond it a ratio has no gradient."""


@dataclass(frozen=True, slots=True, eq=False)
class PolicyTerm:
    """The loss of a batch and what became of its samples. All are (B,); only the loss has a gradient.

    Attributes:
        loss_B: to be minimised. What was clipped or rejected counts in a mean, so that a loss and the batch
            it is divided by do not depend on how many were.
        ratio_B: of the policy to the one that sampled.
        clipped_B: bool; the policy has gone as far as it may in the direction asked for: no gradient.
        rejected_B: bool; the ratio is outside the band: no gradient.
    """

    loss_B: Tensor
    ratio_B: Tensor
    clipped_B: Tensor
    rejected_B: Tensor

    @property
    def loss(self) -> Tensor:
        """The mean over the batch."""
        return self.loss_B.mean()

    def without(self, rejected_B: Tensor) -> PolicyTerm:
        """The same with nothing asked of some samples."""
        loss_B = torch.where(rejected_B, torch.zeros_like(self.loss_B), self.loss_B)
        return replace(self, loss_B=loss_B, rejected_B=self.rejected_B | rejected_B)

    def plus(self, penalty_B: Tensor) -> PolicyTerm:
        """The same with something added to the loss."""
        return replace(self, loss_B=self.loss_B + penalty_B)

    def times(self, factor: float | Tensor) -> PolicyTerm:
        """The same with the loss multiplied."""
        return replace(self, loss_B=self.loss_B * factor)


def ppo_loss(log_p_B: Tensor, log_p_old_B: Tensor, adv_B: Tensor, *, clip_range: float) -> PolicyTerm:
    """max(−Aρ, −A·clip(ρ, 1±ε)) with ρ = exp(clip(log p − log p_old, ±10)).

    Its gradient is zero exactly where A > 0 and ρ > 1+ε, or A < 0 and ρ < 1−ε (and where A is 0, or the
    exponent at its limit).

    Args:
        log_p_B: under the policy being trained; differentiable.
        log_p_old_B: under the policy that sampled, as captured.
        clip_range: ε >= 0.
    """
    return clipped_loss(log_p_B.float() - log_p_old_B.detach().float(), adv_B, clip_range=clip_range)


def clipped_loss(log_ratio_B: Tensor, adv_B: Tensor, *, clip_range: float) -> PolicyTerm:
    """`ppo_loss` of a logarithm of the ratio, such as a guarded one."""
    ratio_B, adv_B = ratio(log_ratio_B), adv_B.detach().float()
    low, high = 1 - clip_range, 1 + clip_range
    clipped_B = ((adv_B > 0) & (ratio_B > high)) | ((adv_B < 0) & (ratio_B < low))
    loss_B = torch.where(clipped_B, -adv_B * ratio_B.detach().clamp(low, high), -adv_B * ratio_B)
    return PolicyTerm(loss_B, ratio_B.detach(), clipped_B, torch.zeros_like(clipped_B))


def dppo_loss(
    log_ratio_B: Tensor, divergence_B: Tensor, adv_B: Tensor, *, divergence_limit: float
) -> PolicyTerm:
    """−Aρ without a clip; a sample has no gradient where the divergence from the policy that sampled exceeds
    a limit *and* the update would move further away (A > 0 and ρ > 1, or A < 0 and ρ < 1).

    Args:
        log_ratio_B: log p − log p_old.
        divergence_B: of the two policies at this sample, such as `gaussian_kl` of their means.
        divergence_limit: ε > 0, in the divergence's unit.
    """
    ratio_B, adv_B = ratio(log_ratio_B), adv_B.detach().float()
    away_B = ((adv_B > 0) & (ratio_B > 1)) | ((adv_B < 0) & (ratio_B < 1))
    masked_B = away_B & (divergence_B.detach() > divergence_limit)
    loss_B = -adv_B * torch.where(masked_B, ratio_B.detach(), ratio_B)
    return PolicyTerm(loss_B, ratio_B.detach(), masked_B, torch.zeros_like(masked_B))


def ratio(log_ratio_B: Tensor) -> Tensor:
    """exp(clip(log ρ, ±10))."""
    return log_ratio_B.float().clamp(-EXPONENT_LIMIT, EXPONENT_LIMIT).exp()


def outside_band(log_ratio_B: Tensor, band: tuple[float, float]) -> Tensor:
    """Bool (B,): where the ratio is below the band or above it, too far off-policy to be trusted.

    A log-ratio that is not a number is outside.
    """
    ratio_B = ratio(log_ratio_B.detach())
    return ~((ratio_B >= band[0]) & (ratio_B <= band[1]))


def guarded_log_ratio(
    log_p_B: Tensor, log_p_old_B: Tensor, divergence_B: Tensor, std: float | Tensor
) -> Tensor:
    """GRPO-Guard's normalised logarithm of the ratio, arXiv 2510.22319: (log p − log p_old + KL)·τ.

    With x' = μ_old + τξ this is mean(ξ·(μ−μ_old)): the plain logarithm's mean is −KL, below zero, and its
    spread differs from step to step; this one's mean is zero and its spread the policy's own displacement.

    Args:
        divergence_B: `gaussian_kl` of the policy's mean and of the mean that sampled; differentiable.
        std: τ of the step.
    """
    return (log_p_B.float() - log_p_old_B.detach().float() + divergence_B) * std


def gaussian_kl(mean: Tensor, mean_other: Tensor, std: float | Tensor, made: Tensor | None = None) -> Tensor:
    """KL of two Gaussians of one deviation, (B,): (μ−μ')²/(2τ²), a mean over each sample's elements.

    Differentiable in the first mean; the other is a fact.

    Args:
        mean, mean_other: (B, …).
        std: τ > 0, a number or (B,).
        made: 1 for elements to take the mean over and 0 for others, broadcastable; None: all of them.
    """
    each_B = mean_over((mean.float() - mean_other.detach().float()).square(), made)
    return each_B / (2 * std * std)


def mean_over(values: Tensor, made: Tensor | None = None) -> Tensor:
    """The mean over each sample's elements, (B,), or over those where `made`, broadcastable, is 1."""
    if made is None:
        return values.flatten(1).mean(1)
    counted = made.expand_as(values)
    return (values * counted).flatten(1).sum(1) / counted.flatten(1).sum(1)
