"""The objective of a language model: the policy gradient of what it wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from mutoscope.platform.training.batch import Example
from mutoscope.platform.training.methods.token_pg import token_policy_gradient
from mutoscope.platform.training.objectives import Draws, Item, Measured, Objective, advantages_of, fresh
from mutoscope.platform.training.policy import TokenPolicy, padded


class Tokens(Objective):
    """The policy gradient of a language model's answers."""

    def __init__(
        self,
        policy: TokenPolicy,
        pinned: TokenPolicy,
        reference: TokenPolicy | None,
        options: Mapping[str, Any],
    ) -> None:
        self.policy, self.pinned, self.reference, self.options = policy, pinned, reference, options

    def items(self, examples: Sequence[Example], draws: Draws) -> list[Item]:
        return [Item(example) for example in examples]

    def measure(self, items: Sequence[Item]) -> Measured:
        examples = [item.example for item in items]
        log_p_BT = self.policy.log_probs(examples)
        device = log_p_BT.device
        old_BT, mask_BT = (part.to(device) for part in _captured(examples))
        with torch.no_grad():
            ref_BT = None if self.reference is None else self.reference.log_probs(examples)
        term = token_policy_gradient(
            log_p_BT,
            advantages_of(items).to(device),
            mask_BT,
            log_p_old_BT=old_BT,
            log_p_ref_BT=ref_BT,
            **self.options,
        )
        made = Measured(term.loss_B)
        made.note("ratio", term.ratio_BT[mask_BT])
        made.note("clipped", term.clipped_BT[mask_BT])
        made.note("rejected", term.rejected_BT[mask_BT])
        delta_BT = (log_p_BT - old_BT).abs()
        made.note("delta_log_p", delta_BT[mask_BT])
        # Of an answer the mean, as a flow's log p is one over its latents: where a model is sensitive,
        # rounding alone moves a single token's by twice what is allowed.
        delta_B = torch.where(mask_BT, delta_BT, 0.0).sum(dim=1) / mask_BT.sum(dim=1)
        made.note("delta_fresh", delta_B[fresh(items).to(device)])
        if ref_BT is not None:
            made.note("kl", term.kl_B)
        return made

    def shift(self, items: Sequence[Item]) -> float:
        examples = [item.example for item in items]
        with torch.no_grad():
            change_BT = (self.policy.log_probs(examples) - self.pinned.log_probs(examples)).abs()
            mask_BT = _captured(examples)[1].to(change_BT.device)
            return float(change_BT[mask_BT].mean())


def _captured(examples: Sequence[Example]) -> tuple[Tensor, Tensor]:
    """Log-probabilities as captured (B, T), and which of them are tokens of the answer."""
    rows = [torch.tensor(e.tokens["log_probs"], dtype=torch.float32) for e in examples if e.tokens]
    return padded(rows), padded([torch.ones(len(row), dtype=torch.bool) for row in rows])
