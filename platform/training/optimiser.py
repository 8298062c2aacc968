"""AdamW (arXiv 1711.05101) over named tensors, whose state is tensors too: it is stored between two steps.

    m ← β₁m + (1−β₁)g        s ← β₂s + (1−β₂)g²
    θ ← (1 − lr·λ)θ − lr · (m/(1−β₁ᵗ)) / (√(s/(1−β₂ᵗ)) + ε)

Tensor by tensor and operation by operation, so that equal gradients make equal bits wherever a run is cut.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(slots=True, kw_only=True)
class AdamW:
    """The optimiser of one component.

    Attributes:
        steps: t, those taken so far. mean, square: m and s by name; a tensor without them has zeros.
    """

    learning_rate: float
    beta1: float
    beta2: float
    epsilon: float
    weight_decay: float
    steps: int = 0
    mean: dict[str, Tensor] = field(default_factory=dict)
    square: dict[str, Tensor] = field(default_factory=dict)

    def step(self, leaves: Mapping[str, Tensor], gradients: Mapping[str, Tensor]) -> None:
        """Move the tensors, in place. A tensor without a gradient stays."""
        self.steps += 1
        rate = self.learning_rate / (1 - self.beta1**self.steps)
        spread = math.sqrt(1 - self.beta2**self.steps)
        for name, gradient in gradients.items():
            leaf = leaves[name]
            mean = self.mean.setdefault(name, torch.zeros_like(gradient))
            square = self.square.setdefault(name, torch.zeros_like(gradient))
            mean.mul_(self.beta1).add_(gradient, alpha=1 - self.beta1)
            square.mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
            if self.weight_decay:
                leaf.mul_(1 - self.learning_rate * self.weight_decay)
            leaf.addcdiv_(mean, square.sqrt().div_(spread).add_(self.epsilon), value=-rate)


def norm_of(gradients: Iterable[Tensor]) -> float:
    """The length of all gradients as one vector; NaN or infinity if one of them holds any."""
    squares = [gradient.double().square().sum() for gradient in gradients]
    return math.sqrt(float(torch.stack(squares).sum())) if squares else 0.0


def shorten(gradients: Iterable[Tensor], norm: float, limit: float | None) -> None:
    """Scale gradients of that length down to the limit, in place."""
    if limit is not None and norm > limit:
        for gradient in gradients:
            gradient.mul_(limit / norm)
