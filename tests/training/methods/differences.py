"""Gradients by central differences, element by element."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def gradient(loss: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    """By autograd, of a scalar."""
    point = at.clone().requires_grad_()
    (found,) = torch.autograd.grad(loss(point), point)
    return found


def differences(loss: Callable[[Tensor], Tensor], at: Tensor, width: float) -> Tensor:
    """(loss(x + h) − loss(x − h)) / 2h in every element."""
    found = torch.empty_like(at)
    for index in range(at.numel()):
        ahead, behind = at.clone(), at.clone()
        ahead.view(-1)[index] += width
        behind.view(-1)[index] -= width
        found.view(-1)[index] = (loss(ahead).double() - loss(behind).double()) / (2 * width)
    return found


def assert_gradient(loss: Callable[[Tensor], Tensor], at: Tensor, width: float = 0.01) -> None:
    """The gradient by autograd is the one by differences, and not zero."""
    found, expected = gradient(loss, at), differences(loss, at, width)
    size = float(expected.abs().max())
    assert size > 0
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-3 * size)


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
