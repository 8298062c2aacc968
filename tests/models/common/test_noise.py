"""Noise equals what a diffusers pipeline draws for the same seed."""

from __future__ import annotations

import pytest
import torch
from diffusers.utils.torch_utils import randn_tensor

from mutoscope.models.common.noise import seeded_normal


@pytest.mark.parametrize("seed", [0, 2**63 - 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_noise(seed: int, dtype: torch.dtype) -> None:
    device = torch.device("cpu")
    generator = torch.Generator("cpu").manual_seed(seed)
    expected = randn_tensor((1, 4, 6, 8), generator=generator, device=device, dtype=dtype)
    before = torch.get_rng_state()
    assert torch.equal(seeded_normal((1, 4, 6, 8), seed, device=device, dtype=dtype), expected)
    assert torch.equal(torch.get_rng_state(), before)
