"""How the autoencoders that several families use decode a tile.

Both walk the decoder's layers as the class's own `tiled_decode` does, and leave the module as it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from diffusers import AutoencoderKL, AutoencoderKLWan
from diffusers.models.autoencoders.autoencoder_kl_wan import WanCausalConv3d, unpatchify
from torch import Tensor


@dataclass(frozen=True, slots=True)
class PictureTiles:
    """AutoencoderKL: a tile is one step."""

    vae: AutoencoderKL

    @property
    def factor(self) -> int:
        return int(2 ** (len(self.vae.config.block_out_channels) - 1))

    def pieces(self, frames: int) -> int:
        return 1

    def decode(self, tile: Tensor, piece: int, carried: None) -> tuple[Tensor, None]:
        if self.vae.config.use_post_quant_conv:
            tile = self.vae.post_quant_conv(tile)
        return self.vae.decoder(tile), None

    def finish(self, signal: Tensor) -> Tensor:
        return signal


@dataclass(frozen=True, slots=True)
class VideoTiles:
    """AutoencoderKLWan: a step decodes one latent frame of a tile.

    The decoder is causal: a frame needs the last features of the frames before it. The class keeps them on
    itself during a decode; here they are handed from step to step, so that decodes may be interleaved.
    """

    vae: AutoencoderKLWan

    @property
    def factor(self) -> int:
        return int(self.vae.config.scale_factor_spatial)

    def pieces(self, frames: int) -> int:
        return frames

    def decode(self, tile: Tensor, piece: int, carried: list[Any] | None) -> tuple[Tensor, list[Any]]:
        features = [None] * self._causal_layers() if carried is None else list(carried)
        frame = self.vae.post_quant_conv(tile[:, :, piece : piece + 1])
        signal = self.vae.decoder(frame, feat_cache=features, feat_idx=[0], first_chunk=piece == 0)
        return signal, features

    def finish(self, signal: Tensor) -> Tensor:
        if self.vae.config.patch_size is not None:
            signal = unpatchify(signal, patch_size=self.vae.config.patch_size)
        return torch.clamp(signal, min=-1.0, max=1.0)

    def _causal_layers(self) -> int:
        return sum(isinstance(module, WanCausalConv3d) for module in self.vae.decoder.modules())
