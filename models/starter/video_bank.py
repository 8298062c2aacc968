"""Training clips as normalised latents with their image conditions: encoded once, drawn many times.

Entry ``i`` is a function of the autoencoder, the seed and ``i`` alone, so a bank is a cache: it may be
lost, and it may grow while the denoiser trains without a resumed run seeing other clips.

Shape legend: N entries, Z latent channels, L latent frames, h and w latent cells; T frames, H and W pixels.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from diffusers import AutoencoderKLWan

from mutoscope.models.starter.grammar import paraphrase
from mutoscope.models.starter.stage import seed_for
from mutoscope.models.starter.video_clips import sample_clips
from mutoscope.models.starter.video_recipe import FRAMES, SIDE, SPATIAL, TEMPORAL, Z
from mutoscope.models.starter.video_vae import encode_clip, lean

LATENT_FRAMES = (FRAMES - 1) // TEMPORAL + 1
CELLS = SIDE // SPATIAL
LATENT_SHAPE = (Z, LATENT_FRAMES, CELLS, CELLS)
CHUNK = 8
SOFTENED = 0.35
"""Share of conditions whose image is a little blurred and noisy, as images drawn by a model are."""


def normalised(vae: AutoencoderKLWan, latents_NZLhw: torch.Tensor) -> torch.Tensor:
    """Latents on the scale the denoiser works in: zero mean and unit variance per channel."""
    mean = torch.tensor(vae.config.latents_mean).view(1, Z, 1, 1, 1)
    std = torch.tensor(vae.config.latents_std).view(1, Z, 1, 1, 1)
    return (latents_NZLhw - mean) / std


def denormalised(vae: AutoencoderKLWan, latents_NZLhw: torch.Tensor) -> torch.Tensor:
    """The inverse of ``normalised``: latents as the decoder takes them."""
    mean = torch.tensor(vae.config.latents_mean).view(1, Z, 1, 1, 1)
    std = torch.tensor(vae.config.latents_std).view(1, Z, 1, 1, 1)
    return latents_NZLhw * std + mean


@torch.no_grad()
def encode(vae: AutoencoderKLWan, clips_NCTHW: torch.Tensor) -> torch.Tensor:
    """Normalised posterior means (N, Z, L, h, w)."""
    with lean(vae):
        return normalised(vae, encode_clip(vae, clips_NCTHW)[:, :Z])


def encode_image(vae: AutoencoderKLWan, images_NCHW: torch.Tensor) -> torch.Tensor:
    """Image latents of the condition: the image as first frame, then mid-grey, as the pipeline encodes it."""
    video = images_NCHW.new_zeros(*images_NCHW.shape[:2], FRAMES, *images_NCHW.shape[2:])
    video[:, :, 0] = images_NCHW
    return encode(vae, video)


def condition(image_latents_NZLhw: torch.Tensor) -> torch.Tensor:
    """Mask (a channel per frame of a latent frame, ones where the image is given) and image latents."""
    mask = image_latents_NZLhw.new_zeros(len(image_latents_NZLhw), TEMPORAL, *image_latents_NZLhw.shape[2:])
    mask[:, :, 0] = 1.0
    return torch.cat([mask, image_latents_NZLhw], dim=1)


def soften(images_NCHW: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """Blur and noise some of the images, a little."""
    softened = images_NCHW.clone()
    for index in np.flatnonzero(rng.random(len(images_NCHW)) < SOFTENED):
        side = float(rng.uniform(0.0, 0.18))
        line = torch.tensor([side, 1 - 2 * side, side])
        kernel = (line[:, None] * line).expand(3, 1, 3, 3)
        image = F.pad(images_NCHW[index : index + 1], (1, 1, 1, 1), mode="replicate")
        image = F.conv2d(image, kernel, groups=3)[0]
        noise = torch.from_numpy(rng.standard_normal(image.shape, dtype=np.float32))
        softened[index] = (image + float(rng.uniform(0.0, 0.04)) * noise).clamp(-1, 1)
    return softened


def draw_chunk(seed: int, chunk: int) -> tuple[torch.Tensor, torch.Tensor, list[str]]:
    """Clips (CHUNK, 3, T, H, W), the images to condition on (CHUNK, 3, H, W), and captions of one chunk."""
    rng = np.random.default_rng(seed_for(seed, chunk))
    scenes, clips = sample_clips(rng, CHUNK)
    return clips, soften(clips[:, :, 0], rng), [paraphrase(scene, rng) for scene in scenes]


class ClipBank:
    """Encoded clips, their image latents and their captions."""

    def __init__(self, vae: AutoencoderKLWan, seed: int, capacity: int) -> None:
        self.vae, self.seed = vae, seed
        size = -(-capacity // CHUNK) * CHUNK
        self.latents = torch.empty(size, *LATENT_SHAPE)
        self.images = torch.empty(size, *LATENT_SHAPE)
        self.captions: list[str] = []

    def __len__(self) -> int:
        return len(self.captions)

    def grow(self, size: int) -> None:
        """Encode clips until the bank holds ``size`` of them, or as many as it may."""
        while len(self) < min(size, len(self.latents)):
            start = len(self)
            clips, images, captions = draw_chunk(self.seed, start // CHUNK)
            self.latents[start : start + CHUNK] = encode(self.vae, clips)
            self.images[start : start + CHUNK] = encode_image(self.vae, images)
            self.captions += captions

    def save(self, path: Path) -> None:
        """Replace ``path`` by the entries so far."""
        partial = path.with_suffix(".partial")
        count = len(self)
        torch.save(
            {
                "latents": self.latents[:count].clone(),
                "images": self.images[:count].clone(),
                "captions": self.captions,
            },
            partial,
        )
        os.replace(partial, path)

    def load(self, path: Path) -> None:
        """Take the entries of a bank saved with the same autoencoder and seed."""
        saved = torch.load(path, weights_only=True)
        self.captions = saved["captions"][: len(self.latents)]
        count = len(self)
        self.latents[:count] = saved["latents"][:count]
        self.images[:count] = saved["images"][:count]
