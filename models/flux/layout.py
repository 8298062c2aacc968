"""Latents as the tokens a FLUX transformer reads.

Shape suffixes
    B  batch        C  latent channels    H, W  latent height and width
    L  tokens: a token is a 2x2 patch, so L = H/2 x W/2                 K  channels of a token, 4 C
"""

from __future__ import annotations

import torch
from diffusers import AutoencoderKL
from torch import Tensor

from mutoscope.models.flux.folder import PATCH
from mutoscope.platform.engine.request import Request


def vae_factor(vae: AutoencoderKL) -> int:
    """Pixels per latent, along each axis."""
    return int(2 ** (len(vae.config.block_out_channels) - 1))


def latent_size(request: Request, factor: int) -> tuple[int, int]:
    """Latent height and width of the requested picture."""
    return request.parameters["height"] // factor, request.parameters["width"] // factor


def pack(latents_BCHW: Tensor) -> Tensor:
    """2x2 patches of latents as tokens: (B, C, H, W) to (B, H/2 x W/2, 4C)."""
    batch, channels, height, width = latents_BCHW.shape
    patches = latents_BCHW.view(batch, channels, height // PATCH, PATCH, width // PATCH, PATCH)
    return patches.permute(0, 2, 4, 1, 3, 5).reshape(batch, -1, channels * PATCH**2)


def unpack(latents_BLK: Tensor, height: int, width: int) -> Tensor:
    """Inverse of `pack` for latents of `height` x `width`."""
    batch, _, width_K = latents_BLK.shape
    patches = latents_BLK.view(batch, height // PATCH, width // PATCH, width_K // PATCH**2, PATCH, PATCH)
    return patches.permute(0, 3, 1, 4, 2, 5).reshape(batch, -1, height, width)


def image_ids(rows: int, columns: int) -> Tensor:
    """Position of each image token, (rows x columns, 3): zero, row, column."""
    grid = torch.zeros(rows, columns, 3)
    grid[..., 1] = torch.arange(rows)[:, None]
    grid[..., 2] = torch.arange(columns)[None, :]
    return grid.reshape(-1, 3)
