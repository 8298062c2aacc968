"""Policy gradient of a language model's tokens, with a KL to a reference (GRPO's k3 estimate).

    L = −masked mean over tokens of [ρ·A − β·k3]
    ρ = exp(log p − log p_old),    k3 = e^d − d − 1 with d = log p_ref − log p

One advantage for a whole answer. The mask reaches up to the first stop token and includes it: ending is an
action too, and what follows it is padding.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from mutoscope.platform.training.methods.ppo import clipped_loss, outside_band

KL_BETA = 0.01

K3_LIMIT = 10.0
"""d is at most this: e^d overflows where a policy all but gave up a token its reference likes."""


@dataclass(frozen=True, slots=True, eq=False)
class TokenTerm:
    """The loss of a batch of answers; all but the loss without gradient.

    Attributes:
        loss_B: to be minimised, one to an answer.
        ratio_BT: of the policy to the one that sampled, token by token; 1 where the mask is not.
        clipped_BT, rejected_BT: bool; tokens without a policy gradient, see `ppo`.
        kl_B: masked mean of k3; 0 without a reference.
        mask_BT: bool; the tokens that count.
    """

    loss_B: Tensor
    ratio_BT: Tensor
    clipped_BT: Tensor
    rejected_BT: Tensor
    kl_B: Tensor
    mask_BT: Tensor

    @property
    def loss(self) -> Tensor:
        """The mean over the batch."""
        return self.loss_B.mean()


def token_policy_gradient(
    log_p_BT: Tensor,
    adv_B: Tensor,
    mask_BT: Tensor,
    *,
    log_p_old_BT: Tensor | None = None,
    log_p_ref_BT: Tensor | None = None,
    kl_beta: float = KL_BETA,
    clip_range: float | None = None,
    ratio_band: tuple[float, float] | None = None,
) -> TokenTerm:
    """The loss of answers, padded to one length; differentiable in `log_p_BT`.

    Args:
        log_p_BT: log p of each token under the policy being trained.
        adv_B: an answer's advantage.
        mask_BT: bool, as `until_stop` makes it; at least one token of every answer.
        log_p_old_BT: as captured; None: the policy's own, which makes ρ = 1 and the gradient REINFORCE's.
        log_p_ref_BT: under the reference; None: no penalty.
        clip_range: ε of PPO's clip; None: no clip.
        ratio_band: tokens whose ratio is outside are rejected; None: all are used.
    """
    log_p_BT = log_p_BT.float()
    old_BT = log_p_BT.detach() if log_p_old_BT is None else log_p_old_BT.detach().float()
    # Padding may hold anything, and 0·NaN is NaN: it is cut off before it is computed with.
    log_ratio_BT = torch.where(mask_BT, log_p_BT - old_BT, 0.0)
    adv_BT = adv_B.float()[:, None].expand_as(log_p_BT)
    policy = clipped_loss(log_ratio_BT, adv_BT, clip_range=float("inf") if clip_range is None else clip_range)
    if ratio_band is not None:
        policy = policy.without(outside_band(log_ratio_BT, ratio_band))
    loss_B = _masked_mean(policy.loss_B, mask_BT)
    kl_B = torch.zeros_like(loss_B)
    if log_p_ref_BT is not None:
        distance_BT = torch.where(mask_BT, log_p_ref_BT.detach().float() - log_p_BT, 0.0)
        kl_B = _masked_mean(k3(distance_BT), mask_BT)
        loss_B = loss_B + kl_beta * kl_B
    return TokenTerm(
        loss_B,
        policy.ratio_B,
        policy.clipped_B & mask_BT,
        policy.rejected_B & mask_BT,
        kl_B.detach(),
        mask_BT,
    )


def k3(distance: Tensor) -> Tensor:
    """e^d − d − 1 >= 0 of d = log p_ref − log p: an estimate of KL(p‖p_ref) whose mean is exact.

    d is cut at `K3_LIMIT`, in the linear part too: with the exponent alone cut, a token far below the
    reference would be pushed further down. Below no cut is needed.
    """
    distance = distance.clamp(max=K3_LIMIT)
    return distance.exp() - distance - 1


def until_stop(tokens_BT: Tensor, stop_tokens: Collection[int]) -> Tensor:
    """Bool (B, T): up to and including an answer's first stop token; everything where there is none."""
    stops = torch.tensor(sorted(stop_tokens), dtype=tokens_BT.dtype, device=tokens_BT.device)
    stopped_BT = torch.isin(tokens_BT, stops).long()
    return (stopped_BT.cumsum(dim=1) - stopped_BT) == 0


def _masked_mean(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    return torch.where(mask_BT, values_BT, 0.0).sum(dim=1) / mask_BT.sum(dim=1)
