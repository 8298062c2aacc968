"""The video VAE between pixels and normalised latents.

Shape legend
    B  batch, 1 here    F  frames           Y, X  frame height, width
    C  channels         T  latent frames    H, W  latent height, width
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from diffusers import AutoencoderKLWan
from diffusers.video_processor import VideoProcessor
from numpy.typing import NDArray
from PIL import Image

from mutoscope.models.common.tile_decoders import VideoTiles
from mutoscope.models.common.tiles import Decoding
from mutoscope.platform.engine.finite import require_finite
from mutoscope.platform.engine.request import Request


@dataclass(frozen=True, slots=True)
class LatentCodec:
    """AutoencoderKLWan with the latent normalisation (z - mean) / std per channel.

    The VAE keeps its causal cache on itself, but only within one `encode` or `decode`: both must run as a
    whole. A decode in tiles keeps the cache elsewhere; see `VideoTiles`.
    """

    vae: AutoencoderKLWan
    device: torch.device

    @property
    def temporal(self) -> int:
        """Frames per latent frame, but for the first latent frame, which holds one."""
        return int(self.vae.config.scale_factor_temporal)

    @property
    def pixels(self) -> VideoProcessor:
        return VideoProcessor(vae_scale_factor=self.vae.config.scale_factor_spatial)

    def latent_shape(self, parameters: Mapping[str, Any]) -> tuple[int, int, int, int, int]:
        """(1, C, T, H, W) of a request's video."""
        spatial = int(self.vae.config.scale_factor_spatial)
        frames = (parameters["num_frames"] - 1) // self.temporal + 1
        return (
            1,
            int(self.vae.config.z_dim),
            frames,
            parameters["height"] // spatial,
            parameters["width"] // spatial,
        )

    def extent(self, request: Request) -> float:
        """How large a request is: elements of a latent channel."""
        _, _, frames, height, width = self.latent_shape(request.parameters)
        return float(frames * height * width)

    def preprocess(self, image: Image.Image, height: int, width: int) -> torch.Tensor:
        """An image as one frame, float32 (1, 3, 1, Y, X) in [-1, 1]; stretched to the size with Lanczos."""
        image_BCYX = self.pixels.preprocess(image, height=height, width=width)
        return image_BCYX.to(self.device, torch.float32).unsqueeze(2)

    def encode(self, video_BCFYX: torch.Tensor) -> torch.Tensor:
        """Pixels in [-1, 1] to the mode of their posterior, normalised, float32 (1, C, T, H, W)."""
        posterior = self.vae.encode(video_BCFYX.to(self.vae.dtype)).latent_dist
        mean, inverse_std = self._statistics(torch.float32)
        latents_BCTHW: torch.Tensor = (posterior.mode().float() - mean) * inverse_std
        return latents_BCTHW

    def decoding(self, latents: str, pixels: str) -> Decoding:
        """From normalised latents in one slot to uint8 frames (F, Y, X, 3) in another, whole or in tiles."""
        return Decoding(
            slot=pixels,
            size=lambda slots: self.latent_shape(slots["request"].parameters)[2:],
            latents=lambda slots: self.denormalised(slots[latents]),
            decoder=VideoTiles(self.vae),
            whole=lambda latents_BCTHW: self.vae.decode(latents_BCTHW, return_dict=False)[0],
            pixels=self.frames,
        )

    def denormalised(self, latents_BCTHW: torch.Tensor) -> torch.Tensor:
        """What the VAE decodes, in its dtype."""
        mean, inverse_std = self._statistics(self.vae.dtype)
        return latents_BCTHW.to(self.vae.dtype) / inverse_std + mean

    def frames(self, video_BCFYX: torch.Tensor) -> NDArray[np.uint8]:
        """What the VAE decodes to, or any part of it, as uint8 frames (F, Y, X, 3). Raises RunFailed if it
        is not finite.
        """
        require_finite(video_BCFYX, "vae")
        frames_FYXC = self.pixels.postprocess_video(video_BCFYX, output_type="np")[0]
        frames: NDArray[np.uint8] = (frames_FYXC * 255).round().astype(np.uint8)
        return frames

    def _statistics(self, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and 1 / std, each (1, C, 1, 1, 1); the reciprocal is rounded before use, as the pipeline's."""
        config, shape = self.vae.config, (1, -1, 1, 1, 1)
        mean = torch.tensor(config.latents_mean).view(shape).to(self.device, dtype)
        inverse_std = 1.0 / torch.tensor(config.latents_std).view(shape).to(self.device, dtype)
        return mean, inverse_std
