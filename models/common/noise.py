"""Initial noise, drawn so that a seed means the same on every device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def seeded_normal(shape: Sequence[int], seed: int, *, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Standard normal noise of `shape`, drawn by a CPU generator of its own and then moved to `device`.

    This is what a diffusers pipeline draws when it is given `torch.Generator("cpu").manual_seed(seed)`.
    """
    generator = torch.Generator("cpu").manual_seed(seed)
    return torch.randn(tuple(shape), generator=generator, dtype=dtype, device="cpu").to(device)
