"""Every number that decides the starter image model, stage by stage."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class VaeRecipe:
    """AutoencoderKL: 64x64 pictures to 8x8 latents of 8 channels."""

    seed: int = 11
    channels: tuple[int, ...] = (16, 32, 48, 64)
    latent_channels: int = 8
    norm_groups: int = 8
    crop: int = 32
    """Side of the training crops, in pixels; most of a whole picture is background that teaches nothing."""
    crop_batch: int = 16
    crop_share: float = 0.65
    """Part of the steps on crops; the rest see whole pictures, whose normalisation statistics differ."""
    full_batch: int = 6
    steps: int = 1100
    learning_rate: float = 4e-3
    warmup: int = 50
    squared_weight: float = 4.0
    edge_weight: float = 0.5
    latent_noise: float = 0.1
    """Standard deviation of the posterior, held fixed: the decoder must bear what the denoiser leaves."""
    mean_weight: float = 3e-3
    """Pull of posterior means towards zero: the part of KL that a fixed deviation leaves."""


@dataclass(frozen=True)
class PolishRecipe:
    """The decoder alone, once the latents are settled: it learns to forgive what the denoiser leaves."""

    seed: int = 15
    spread: float = 0.5
    batch: int = 6
    steps: int = 900
    learning_rate: float = 1.5e-3
    warmup: int = 20
    most_noise: float = 0.3
    """Latents carry noise of a deviation drawn from 0 to this, in their own units, per picture."""


@dataclass(frozen=True)
class TextRecipe:
    """CLIP text model and T5 encoder, taught binding on captions alone."""

    seed: int = 12
    width: int = 128
    heads: int = 4
    clip_layers: int = 2
    t5_layers: int = 3
    batch: int = 64
    steps: int = 450
    learning_rate: float = 3e-3
    warmup: int = 20


@dataclass(frozen=True)
class DitRecipe:
    """FluxTransformer2DModel over 16 image tokens and 20 text tokens."""

    seed: int = 13
    bank_seed: int = 14
    bank_size: int = 20_000
    spread: float = 0.5
    """Placements vary half as much as the world allows: less to learn, and the checker is as strict."""
    single_share: float = 0.4
    """Part of a batch that shows one object."""
    double_blocks: int = 2
    single_blocks: int = 4
    heads: int = 4
    head_width: int = 32
    rope_axes: tuple[int, int, int] = (8, 12, 12)
    batch: int = 32
    steps: int = 4_100
    learning_rate: float = 2e-3
    warmup: int = 100
    average_decay: float = 0.998
    caption_drop: float = 0.1
    shift: float = 2.0
    inference_steps: int = 20
    guidance: float = 3.0
    watch_captions: int = 32


@dataclass(frozen=True)
class ImageRecipe:
    """All stages of the image model."""

    vae: VaeRecipe = field(default_factory=VaeRecipe)
    polish: PolishRecipe = field(default_factory=PolishRecipe)
    text: TextRecipe = field(default_factory=TextRecipe)
    dit: DitRecipe = field(default_factory=DitRecipe)
