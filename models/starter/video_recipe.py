"""What the starter image-to-video model is made of and how long each part is trained.

Every number that decides the weights stands here, in frozen dataclasses; the stages read nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

SIDE: Final = 64
"""Height and width of a frame, in pixels."""
FRAMES: Final = 17
SPATIAL: Final = 8
"""Pixels per latent cell along each side: patch 2, then two halvings."""
TEMPORAL: Final = 4
"""Frames per latent frame, after a first frame that has a latent frame of its own."""
Z: Final = 16


@dataclass(frozen=True)
class VideoVaeConfig:
    """AutoencoderKLWan: its shape and its training."""

    seed: int = 20
    base: int = 16
    dim_mult: tuple[int, ...] = (1, 2, 2)
    learning_rate: float = 4e-3
    warmup: int = 100
    crop: int = 32
    """Side of the training crops; most of a full frame is background that teaches nothing."""
    crop_batch: int = 4
    crop_share: float = 0.75
    """Part of the steps on crops; the rest see whole frames, with borders and wide backgrounds."""
    full_batch: int = 1
    first_frame_weight: float = 2.5
    """The first frame is what a viewer compares with the given image, and one of seventeen."""
    squared_weight: float = 4.0
    edge_weight: float = 0.5
    latent_noise: float = 0.1
    """Standard deviation of the posterior, held fixed: the decoder must bear what the denoiser leaves."""
    kl_weight: float = 1e-4
    average: float = 0.998
    total_steps: int = 3000

    def architecture(self) -> dict[str, Any]:
        """Arguments of ``AutoencoderKLWan``."""
        return {
            "base_dim": self.base,
            "decoder_base_dim": self.base,
            "z_dim": Z,
            "dim_mult": list(self.dim_mult),
            "num_res_blocks": 1,
            "temperal_downsample": [True, True],
            "is_residual": True,
            "patch_size": 2,
            "in_channels": 12,
            "out_channels": 12,
            "scale_factor_temporal": TEMPORAL,
            "scale_factor_spatial": SPATIAL,
            "latents_mean": [0.0] * Z,
            "latents_std": [1.0] * Z,
        }


@dataclass(frozen=True)
class VideoTextConfig:
    """UMT5EncoderModel: its shape and its training."""

    seed: int = 21
    width: int = 128
    heads: int = 4
    layers: int = 2
    batch: int = 64
    learning_rate: float = 1e-3
    warmup: int = 50
    total_steps: int = 1000


@dataclass(frozen=True)
class VideoDitConfig:
    """WanTransformer3DModel: its shape and its training."""

    seed: int = 22
    layers: int = 5
    heads: int = 4
    head_width: int = 32
    ffn: int = 384
    frequencies: int = 128
    """Width of the sinusoidal timestep embedding."""
    bank_seed: int = 23
    bank_start: int = 1280
    bank_growth: int = 1
    """Entries added a step; encoding is dear, so early batches draw from few clips with fresh noise."""
    bank_size: int = 3384
    batch: int = 16
    learning_rate: float = 3e-3
    text_learning_rate: float = 2e-4
    warmup: int = 100
    average: float = 0.998
    caption_drop: float = 0.1
    shift: float = 3.0
    """Timestep shift of the scheduler; training draws its noise levels with the same shift."""
    first_frame_weight: float = 2.0
    total_steps: int = 3000
    inference_steps: int = 12
    guidance: float = 1.0

    def architecture(self, text_width: int) -> dict[str, Any]:
        """Arguments of ``WanTransformer3DModel``: noise, mask and image latents in, velocity out."""
        return {
            "patch_size": (1, 2, 2),
            "num_attention_heads": self.heads,
            "attention_head_dim": self.head_width,
            "in_channels": 2 * Z + TEMPORAL,
            "out_channels": Z,
            "text_dim": text_width,
            "freq_dim": self.frequencies,
            "ffn_dim": self.ffn,
            "num_layers": self.layers,
            "cross_attn_norm": True,
            "image_dim": None,
            "rope_max_seq_len": 64,
        }


@dataclass(frozen=True)
class VideoPolishConfig:
    """Last training of the decoder, on latents as the denoiser leaves them."""

    seed: int = 24
    batch: int = 1
    learning_rate: float = 1.5e-3
    warmup: int = 50
    least_noise: float = 0.05
    most_noise: float = 0.5
    average: float = 0.995
    total_steps: int = 1500


@dataclass(frozen=True)
class VideoRecipe:
    """All parts of the model, and the minutes a full training gives to each on one core."""

    vae: VideoVaeConfig = field(default_factory=VideoVaeConfig)
    text: VideoTextConfig = field(default_factory=VideoTextConfig)
    dit: VideoDitConfig = field(default_factory=VideoDitConfig)
    polish: VideoPolishConfig = field(default_factory=VideoPolishConfig)
    onward: VideoDitConfig = field(
        default_factory=lambda: VideoDitConfig(seed=122, bank_start=2400, bank_size=6400, total_steps=5000)
    )
    """The denoiser's, when training goes on from a folder: other noise, a larger bank, a longer schedule."""
