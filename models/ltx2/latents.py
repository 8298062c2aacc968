"""The shapes, noise and statistics of both modalities' latents.

The transformer sees a token for each latent of the video and for each moment of the sound. Latents are
normalised there; VAEs and the upsampler take them as they are.

Shape suffixes
    B  batch, 1 here    C  channels of the video's latents    T, H, W  its latent frames, height, width
    L  video tokens, T x H x W       M  moments of the sound, its tokens
    A  channels of the sound's latents    F  their frequency bins    K  features of a moment, A x F
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from diffusers import AutoencoderKLLTX2Audio, AutoencoderKLLTX2Video
from torch import Tensor

from mutoscope.models.ltx2.folder import MEL_RATIO


@dataclass(frozen=True, slots=True)
class Grid:
    """Latent frames, height and width of a stage's video, and moments of its sound, 0 for none."""

    frames: int
    height: int
    width: int
    moments: int

    @property
    def tokens(self) -> int:
        """What the transformer attends over, of both modalities."""
        return self.frames * self.height * self.width + self.moments


@dataclass(frozen=True, slots=True)
class Latents:
    """Between tokens of normalised latents and what the VAEs take, for one folder's VAEs."""

    vae: AutoencoderKLLTX2Video
    audio_vae: AutoencoderKLLTX2Audio

    def grid(self, parameters: Mapping[str, Any], *, halved: bool = False) -> Grid:
        """That of a request's video, or of one of half its height and width."""
        spatial = int(self.vae.spatial_compression_ratio) * (2 if halved else 1)
        frames, fps = parameters["num_frames"], parameters["fps"]
        return Grid(
            (frames - 1) // int(self.vae.temporal_compression_ratio) + 1,
            parameters["height"] // spatial,
            parameters["width"] // spatial,
            round(frames / fps * self.moments_per_second) if parameters["audio"] else 0,
        )

    @property
    def moments_per_second(self) -> float:
        """Latents of sound for a second of it."""
        config = self.audio_vae.config
        return float(config.sample_rate / config.mel_hop_length / float(MEL_RATIO))

    @property
    def bins(self) -> int:
        """Frequency bins of the sound's latents."""
        return int(self.audio_vae.config.mel_bins or 64) // MEL_RATIO

    def noise(self, grid: Grid, seed: int, device: torch.device) -> tuple[Tensor, Tensor | None]:
        """Tokens (1, L, C) and (1, M, K) of noise, float32; the video's is drawn first, sound or not."""
        generator = torch.Generator("cpu").manual_seed(seed)
        video = (1, int(self.vae.config.latent_channels), grid.frames, grid.height, grid.width)
        video_BLC = pack(torch.randn(video, generator=generator)).to(device)
        if not grid.moments:
            return video_BLC, None
        audio = (1, int(self.audio_vae.config.latent_channels), grid.moments, self.bins)
        return video_BLC, pack_audio(torch.randn(audio, generator=generator)).to(device)

    def normalise(self, latents_BCTHW: Tensor) -> Tensor:
        mean, std = self._statistics(latents_BCTHW)
        return (latents_BCTHW - mean) * self.vae.config.scaling_factor / std

    def denormalise(self, latents_BCTHW: Tensor) -> Tensor:
        mean, std = self._statistics(latents_BCTHW)
        return latents_BCTHW * std / self.vae.config.scaling_factor + mean

    def normalise_audio(self, latents_BMK: Tensor) -> Tensor:
        mean, std = self._audio_statistics(latents_BMK)
        return (latents_BMK - mean) / std

    def denormalise_audio(self, latents_BMK: Tensor) -> Tensor:
        mean, std = self._audio_statistics(latents_BMK)
        return latents_BMK * std + mean

    def _statistics(self, like: Tensor) -> tuple[Tensor, Tensor]:
        mean, std = (t.view(1, -1, 1, 1, 1).to(like) for t in (self.vae.latents_mean, self.vae.latents_std))
        return mean, std

    def _audio_statistics(self, like: Tensor) -> tuple[Tensor, Tensor]:
        return self.audio_vae.latents_mean.to(like), self.audio_vae.latents_std.to(like)


def second_seed(seed: int) -> int:
    """The seed of the second stage's noise: a stream of its own.

    Going on with the first stage's would make the video's noise depend on whether a sound was drawn before.
    CPU generators look at the low 32 bits alone, so the whole seed is hashed.
    """
    return int.from_bytes(hashlib.sha256(b"ltx2 stage 2 %d" % seed).digest()[:7])


def noised(latents: Tensor, level: float, generator: torch.Generator) -> Tensor:
    """Tokens brought to noise level `level`; noise is drawn by `generator` on the CPU, in their own order."""
    noise = torch.randn(latents.shape, generator=generator, dtype=latents.dtype).to(latents.device)
    return level * noise + (1 - level) * latents


def pack(latents_BCTHW: Tensor) -> Tensor:
    """Latents as tokens, (1, L, C)."""
    return latents_BCTHW.permute(0, 2, 3, 4, 1).flatten(1, 3).contiguous()


def unpack(tokens_BLC: Tensor, grid: Grid) -> Tensor:
    """Inverse of `pack`."""
    return tokens_BLC.unflatten(1, (grid.frames, grid.height, grid.width)).permute(0, 4, 1, 2, 3)


def pack_audio(latents_BAMF: Tensor) -> Tensor:
    """Latents of sound as tokens, (1, M, K)."""
    return latents_BAMF.transpose(1, 2).flatten(2, 3).contiguous()


def unpack_audio(tokens_BMK: Tensor, bins: int) -> Tensor:
    """Inverse of `pack_audio`."""
    return tokens_BMK.unflatten(2, (-1, bins)).transpose(1, 2)
