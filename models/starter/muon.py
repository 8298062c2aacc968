"""Muon: momentum whose update is orthogonalised, for small models with few steps to spend.

Update rule of Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024), with the
``0.2 * sqrt(max(rows, columns))`` scale of Liu et al., "Muon is scalable for LLM training" (2025), which
makes its learning rates comparable to AdamW's.  Convolution kernels are treated as matrices (out,
everything else).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import nn

_A, _B, _C = 3.4445, -4.7750, 2.0315


def orthogonalised(matrix: torch.Tensor, iterations: int = 5) -> torch.Tensor:
    """Roughly ``U V^T`` of the (batched) matrix's singular value decomposition, by Newton-Schulz steps."""
    x = matrix.mT if matrix.size(-2) > matrix.size(-1) else matrix
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(iterations):
        square = x @ x.mT
        x = _A * x + (_B * square + _C * square @ square) @ x
    return x.mT if matrix.size(-2) > matrix.size(-1) else x


class Muon(torch.optim.Optimizer):
    """Orthogonalised Nesterov momentum; every parameter needs two or more dimensions."""

    def __init__(
        self, parameters: Iterable[nn.Parameter], lr: float, momentum: float = 0.95, iterations: int = 5
    ) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "iterations": iterations})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update; equal shapes are orthogonalised together."""
        for group in self.param_groups:
            shapes: dict[tuple[int, int], list[tuple[nn.Parameter, torch.Tensor]]] = {}
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["momentum"] = torch.zeros_like(parameter)
                state["momentum"].lerp_(parameter.grad, 1 - group["momentum"])
                update = parameter.grad.lerp(state["momentum"], group["momentum"]).flatten(1)
                shapes.setdefault((update.shape[0], update.shape[1]), []).append((parameter, update))
            for shape, pairs in shapes.items():
                scale = -group["lr"] * 0.2 * math.sqrt(max(shape))
                iterations = group["iterations"]
                updates = orthogonalised(torch.stack([update for _, update in pairs]), iterations)
                for (parameter, _), update in zip(pairs, updates, strict=True):
                    parameter.add_(update.view_as(parameter), alpha=scale)


def optimisers_for(module: nn.Module, rate: float) -> list[torch.optim.Optimizer]:
    """Muon for matrices and kernels, Adam for vectors, of what still trains in ``module``."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    # A norm gain of shape (C, 1, 1, 1) is a vector, whatever its dimensions say.
    vectors = [p for p in parameters if p.numel() == max(p.shape, default=1)]
    chosen = {id(p) for p in vectors}
    matrices = [p for p in parameters if id(p) not in chosen]
    return [Muon(matrices, lr=rate), torch.optim.Adam(vectors, lr=rate, betas=(0.9, 0.98))]
