"""Training the video autoencoder: AutoencoderKLWan on moving shapes, whole clips in one pass.

Shape legend: B clips, C channels, T frames, L latent frames (T = 4L - 3), H and W pixels, h and w latent
cells.

The class encodes and decodes in chunks of four frames with feature caches, which spares memory on long
videos and costs time on short ones.  ``encode_clip`` and ``decode_clip`` run the same modules over all
frames at once: all convolutions are causal, so the results agree to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MethodType

import numpy as np
import torch
import torch.nn.functional as F
from diffusers import AutoencoderKLWan
from diffusers.models.autoencoders.autoencoder_kl_wan import (
    WanCausalConv3d,
    WanResample,
    WanRMS_norm,
    patchify,
    unpatchify,
)

from mutoscope.models.starter.muon import optimisers_for
from mutoscope.models.starter.stage import Average, Metrics, Stage, seed_for
from mutoscope.models.starter.video_clips import sample_clips, sample_crops
from mutoscope.models.starter.video_recipe import VideoVaeConfig, Z


def _downsample(module: WanResample, x_BCTHW: torch.Tensor) -> torch.Tensor:
    x = _per_frame(module, x_BCTHW)
    if module.mode == "downsample3d" and x.shape[2] > 1:
        # The first frame keeps a latent frame of its own; stride 2 pairs the rest with a frame of past.
        x = torch.cat([x[:, :, :1], module.time_conv(x)], dim=2)
    return x


def _upsample(module: WanResample, x_BCTHW: torch.Tensor) -> torch.Tensor:
    batch, channels, frames, height, width = x_BCTHW.shape
    if module.mode == "upsample3d" and frames > 1:
        # The first frame is not doubled, and the doubling convolution sees zeros in its place.
        pairs = module.time_conv(x_BCTHW[:, :, 1:]).view(batch, 2, channels, frames - 1, height, width)
        doubled = pairs.permute(0, 2, 3, 1, 4, 5).reshape(batch, channels, 2 * (frames - 1), height, width)
        x_BCTHW = torch.cat([x_BCTHW[:, :, :1], doubled], dim=2)
    return _per_frame(module, x_BCTHW)


def _per_frame(module: WanResample, x_BCTHW: torch.Tensor) -> torch.Tensor:
    batch, channels, frames, height, width = x_BCTHW.shape
    x = module.resample(x_BCTHW.permute(0, 2, 1, 3, 4).reshape(batch * frames, channels, height, width))
    return x.view(batch, frames, *x.shape[1:]).permute(0, 2, 1, 3, 4)


def encode_clip(vae: AutoencoderKLWan, clip_BCTHW: torch.Tensor) -> torch.Tensor:
    """Posterior parameters (B, 2Z, L, h, w) of whole clips: means, then log-variances; as ``vae.encode``."""
    encoder = vae.encoder
    x = encoder.conv_in(patchify(clip_BCTHW, vae.config.patch_size))
    for block in encoder.down_blocks:
        shortcut = block.avg_shortcut(x)
        for resnet in block.resnets:
            x = resnet(x)
        if block.downsampler is not None:
            x = _downsample(block.downsampler, x)
        x = x + shortcut
    x = encoder.mid_block(x)
    return vae.quant_conv(encoder.conv_out(encoder.nonlinearity(encoder.norm_out(x))))


def decode_clip(vae: AutoencoderKLWan, latent_BZLhw: torch.Tensor) -> torch.Tensor:
    """Clips (B, 3, T, H, W) of latents in the autoencoder's own scale; as ``vae.decode``, but not clamped."""
    decoder = vae.decoder
    x = decoder.mid_block(decoder.conv_in(vae.post_quant_conv(latent_BZLhw)))
    for block in decoder.up_blocks:
        shortcut = None if block.avg_shortcut is None else block.avg_shortcut(x, first_chunk=True)
        for resnet in block.resnets:
            x = resnet(x)
        if block.upsampler is not None:
            x = _upsample(block.upsampler, x)
        if shortcut is not None:
            x = x + shortcut
    x = decoder.conv_out(decoder.nonlinearity(decoder.norm_out(x)))
    return unpatchify(x, vae.config.patch_size)


def _lean_norm(self: WanRMS_norm, x: torch.Tensor) -> torch.Tensor:
    inverse = torch.rsqrt(x.square().sum(1, keepdim=True) + 1e-12) * self.scale
    return x * inverse * self.gamma


def _lean_convolution(self: WanCausalConv3d, x: torch.Tensor, cache_x: None = None) -> torch.Tensor:
    width, _, height, _, past, _ = self._padding
    if past:
        x = F.pad(x, (0, 0, 0, 0, past, 0))
    return F.conv3d(x, self.weight, self.bias, self.stride, (0, height, width))


@contextmanager
def lean(vae: AutoencoderKLWan) -> Iterator[None]:
    """Cheaper forms of the norm and the padding, equal to rounding; a quarter of a CPU training step."""
    forms: dict[type, Callable[..., torch.Tensor]] = {
        WanRMS_norm: _lean_norm,
        WanCausalConv3d: _lean_convolution,
    }
    changed = [m for m in vae.modules() if type(m) in forms]
    for module in changed:
        module.forward = MethodType(forms[type(module)], module)
    try:
        yield
    finally:
        for module in changed:
            del module.forward


def build_vae(config: VideoVaeConfig) -> AutoencoderKLWan:
    """A fresh autoencoder whose posterior has the fixed standard deviation ``config.latent_noise``."""
    torch.manual_seed(config.seed)
    vae = AutoencoderKLWan(**config.architecture())
    with torch.no_grad():
        vae.quant_conv.weight[Z:].zero_()
        vae.quant_conv.bias[Z:].fill_(2.0 * float(np.log(config.latent_noise)))
    return vae.eval()


def reconstruction_loss(output: torch.Tensor, clip: torch.Tensor, config: VideoVaeConfig) -> torch.Tensor:
    """Absolute, squared and edge differences, the first frame counted ``first_frame_weight`` times."""
    weight = torch.ones(clip.shape[2]).index_fill_(0, torch.tensor([0]), config.first_frame_weight)
    weight = (weight / weight.mean()).view(1, 1, -1, 1, 1)
    error = output - clip
    edges = error.diff(dim=3).abs().mul(weight).mean() + error.diff(dim=4).abs().mul(weight).mean()
    pointwise = (error.abs() + config.squared_weight * error.square()).mul(weight).mean()
    return pointwise + config.edge_weight * edges


def psnr(output: torch.Tensor, clip: torch.Tensor) -> torch.Tensor:
    """Peak signal-to-noise ratio per leading index, in dB, of values in [-1, 1]."""
    error = (output.clamp(-1, 1) - clip).square().flatten(1).mean(1)
    return 10 * torch.log10(4.0 / error.clamp_min(1e-10))


class VideoVaeStage(Stage):
    """The autoencoder's training: crops around objects first, whole frames last."""

    name = "video_vae"

    def __init__(self, config: VideoVaeConfig) -> None:
        self.config, self.vae = config, build_vae(config)
        self.average = Average(self.vae, config.average)
        optimisers = optimisers_for(self.vae, config.learning_rate)
        super().__init__(config.total_steps, config.warmup, {"vae": self.vae}, optimisers, self.average)

    def _batch(self) -> torch.Tensor:
        rng = np.random.default_rng(seed_for(self.config.seed, self.steps_done))
        if self.steps_done < self.config.crop_share * self.total_steps:
            return sample_crops(rng, self.config.crop_batch, self.config.crop)
        return sample_clips(rng, self.config.full_batch)[1]

    def step(self) -> Metrics:
        """One batch: reconstruct through noisy latents."""
        config = self.config
        clip = self._batch()
        noise = torch.Generator().manual_seed(seed_for(config.seed, self.steps_done, 1))
        with lean(self.vae):
            mean = encode_clip(self.vae, clip)[:, :Z]
            sample = mean + config.latent_noise * torch.randn(mean.shape, generator=noise)
            output = decode_clip(self.vae, sample)
            loss = reconstruction_loss(output, clip, config) + config.kl_weight * mean.square().mean()
            loss.backward()
        self._update()
        with torch.no_grad():
            quality = psnr(output, clip).mean().item()
            first = psnr(output[:, :, 0], clip[:, :, 0]).mean().item()
        return {
            "loss": loss.item(),
            "psnr": quality,
            "first": first,
            "rms": mean.square().mean().sqrt().item(),
        }

    def averaged(self) -> AutoencoderKLWan:
        """The autoencoder with averaged weights."""
        vae = AutoencoderKLWan(**self.config.architecture()).eval().requires_grad_(False)
        vae.load_state_dict(self.average.shadow)
        return vae

    @torch.no_grad()
    def evaluate(self) -> Metrics:
        """PSNR of the averaged weights on 16 held-out clips, through the class's own chunked passes."""
        vae = self.averaged()
        _, clips = sample_clips(np.random.default_rng(seed_for(self.config.seed, 0, 9)), 16, "held_out")
        output = vae.decode(vae.encode(clips).latent_dist.mode()).sample
        per_frame = [psnr(output[:, :, t], clips[:, :, t]).mean().item() for t in (0, 1, 8, 16)]
        return {
            "held_psnr": psnr(output, clips).mean().item(),
            **{f"held_psnr_{t}": v for t, v in zip((0, 1, 8, 16), per_frame, strict=True)},
        }

    def export(self, folder: Path) -> None:
        """Write ``vae/`` with latent statistics measured on training clips."""
        vae = self.averaged()
        mean, std = latent_statistics(vae, self.config.seed)
        vae.register_to_config(latents_mean=mean, latents_std=std)
        vae.save_pretrained(folder / "vae")


@torch.no_grad()
def latent_statistics(vae: AutoencoderKLWan, seed: int, clips: int = 64) -> tuple[list[float], list[float]]:
    """Per-channel mean and standard deviation of latents of training clips."""
    rng = np.random.default_rng(seed_for(seed, 0, 7))
    latents = torch.cat([encode_clip(vae, sample_clips(rng, 8)[1])[:, :Z] for _ in range(clips // 8)])
    per_channel = latents.transpose(0, 1).flatten(1)
    return per_channel.mean(1).tolist(), per_channel.std(1).tolist()
