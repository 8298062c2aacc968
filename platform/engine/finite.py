"""NaN and infinity: found where they arise, named, and never stored.

Weights are scanned once, when they are loaded. At run time the result of every step is looked at, which takes
one pass over a latent: microseconds beside the model's milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from mutoscope.platform.errors import InvalidFolder, NonFinite

JUDGES_ITSELF = frozenset({"reward_batch"})
"""Kinds of steps whose card reports a value that is not finite as such: a score may be one."""

_REMEDY = "lower guidance or use a wider dtype if it overflowed, else load weights that are sound"


def all_finite(tensor: Tensor) -> bool:
    """Whether a tensor holds neither NaN nor infinity. Waits for the device."""
    if not tensor.numel() or not (tensor.is_floating_point() or tensor.is_complex()):
        return True
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    if tensor.element_size() == 1:  # float8, which has no reductions
        tensor = tensor.to(torch.float16)
    # NaN wins both ends and infinity is one of them: a single pass, and no mask as large as the tensor.
    low, high = torch.aminmax(tensor)
    return math.isfinite(low.item()) and math.isfinite(high.item())


def tensors_of(value: Any) -> Iterator[Tensor]:
    """The tensors of a step's result: itself, or those of its tuples, lists and mappings."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_of(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from tensors_of(item)


def require_finite(value: Any, what: str) -> None:
    """Raise NonFinite, which names `what` made them, if a tensor of the value holds NaN or infinity."""
    for tensor in tensors_of(value):
        if not all_finite(tensor):
            bad = int((~torch.isfinite(tensor)).sum())
            raise NonFinite(
                f"{what} gave NaN or infinity, {bad} of {tensor.numel()} values {tuple(tensor.shape)} in "
                f"{str(tensor.dtype).removeprefix('torch.')}: {_REMEDY}"
            )


def broken_weight(module: nn.Module) -> str | None:
    """The name of the first parameter or buffer with NaN or infinity in it; None if there is none.

    Buffers outside the state dict are passed over: a mask of minus infinities is no damage.
    """
    for name, tensor in module.state_dict(keep_vars=True).items():
        if isinstance(tensor, Tensor) and not all_finite(tensor.detach()):
            return str(name)
    return None


def require_finite_weights(component: str, module: nn.Module) -> None:
    """Refuse a module with NaN or infinity in its weights; InvalidFolder names component and tensor."""
    name = broken_weight(module)
    if name is not None:
        raise InvalidFolder(
            f"{component} holds NaN or infinity in {name}: take the component from a sound checkpoint"
        )
