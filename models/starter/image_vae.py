"""The picture autoencoder: AutoencoderKL trained on freshly rendered scenes.

Shapes: pixels (B, 3, 64, 64) in [-1, 1]; latents (B, 8, 8, 8).
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from diffusers import AutoencoderKL
from torch import Tensor

from mutoscope.models.starter.grammar import BACKGROUNDS, Scene, Split, sample_scene
from mutoscope.models.starter.image_recipe import PolishRecipe, VaeRecipe
from mutoscope.models.starter.muon import optimisers_for
from mutoscope.models.starter.render import Pixels, place, render_many
from mutoscope.models.starter.stage import Metrics, Stage, seed_for


def build_vae(recipe: VaeRecipe) -> AutoencoderKL:
    """The untrained autoencoder, seeded, its posterior deviation fixed at ``latent_noise``."""
    torch.manual_seed(recipe.seed)
    depth = len(recipe.channels)
    vae = AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * depth,
        up_block_types=("UpDecoderBlock2D",) * depth,
        block_out_channels=recipe.channels,
        layers_per_block=1,
        latent_channels=recipe.latent_channels,
        norm_num_groups=recipe.norm_groups,
        mid_block_add_attention=False,
        use_quant_conv=False,
        use_post_quant_conv=False,
        sample_size=64,
        scaling_factor=1.0,
        shift_factor=0.0,
    )
    with torch.no_grad():
        vae.encoder.conv_out.weight[recipe.latent_channels :].zero_()
        vae.encoder.conv_out.bias[recipe.latent_channels :].fill_(2.0 * math.log(recipe.latent_noise))
    return vae


def to_signal(pixels: Pixels) -> Tensor:
    """uint8 (B, H, W, 3) to float32 (B, 3, H, W) in [-1, 1]."""
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).to(torch.float32).div_(127.5).sub_(1.0)


def scene_batch(
    rng: np.random.Generator, count: int, split: Split = "train", spread: float = 1.0
) -> tuple[list[Scene], Pixels]:
    """``count`` scenes of ``split`` with their pictures; ``spread`` scales how much placements vary."""
    scenes = [sample_scene(rng, split) for _ in range(count)]
    return scenes, render_many(scenes, [place(scene, rng, spread) for scene in scenes])


def balanced_batch(rng: np.random.Generator, count: int, spread: float) -> Pixels:
    """Training pictures with every background equally often; the world itself is half white."""
    scenes = []
    for _ in range(count):
        background = BACKGROUNDS[rng.integers(len(BACKGROUNDS))]
        scene = sample_scene(rng)
        while scene.background != background:
            scene = sample_scene(rng)
        scenes.append(scene)
    return render_many(scenes, [place(scene, rng, spread) for scene in scenes])


def crop_batch(rng: np.random.Generator, count: int, side: int) -> Pixels:
    """``count`` crops (side, side) of training pictures, each holding the centre of an object."""
    scenes = [sample_scene(rng) for _ in range(count)]
    spots = [place(scene, rng) for scene in scenes]
    crops = []
    for picture, placed in zip(render_many(scenes, spots), spots, strict=True):
        spot = placed[rng.integers(len(placed))]
        left, top = (
            int(np.clip(centre - side / 2 + rng.uniform(-side / 3, side / 3), 0, 64 - side))
            for centre in (spot.x, spot.y)
        )
        crops.append(picture[top : top + side, left : left + side])
    return np.stack(crops)


@torch.no_grad()
def latent_statistics(vae: AutoencoderKL, seed: int, pictures: int = 512) -> tuple[float, float]:
    """Mean and standard deviation of posterior means over training pictures: the shift and 1/scale of the
    folder.
    """
    _, pixels = scene_batch(np.random.default_rng((seed, 1 << 30)), pictures)
    means = torch.cat([vae.encode(to_signal(part)).latent_dist.mean for part in np.array_split(pixels, 16)])
    return float(means.mean()), float(means.std())


def reconstruction_loss(error: Tensor, recipe: VaeRecipe) -> Tensor:
    """Absolute, squared and edge differences of pictures (B, 3, H, W)."""
    edges = error.diff(dim=2).abs().mean() + error.diff(dim=3).abs().mean()
    return error.abs().mean() + recipe.squared_weight * error.square().mean() + recipe.edge_weight * edges


@torch.no_grad()
def held_out_psnr(vae: AutoencoderKL, seed: int, pictures: int = 256) -> float:
    """Held-out PSNR in dB through the posterior mean."""
    _, pixels = scene_batch(np.random.default_rng((seed, 1 << 31)), pictures, "held_out")
    errors = []
    for part in np.array_split(pixels, 8):
        signal = to_signal(part)
        decoded = vae.decode(vae.encode(signal).latent_dist.mean).sample.clamp(-1, 1)
        errors.append((decoded - signal).square().mean().item())
    return psnr(float(np.mean(errors)))


class VaeStage(Stage):
    """Reconstruction through noisy latents: crops around objects first, whole pictures last."""

    name = "image_vae"

    def __init__(self, recipe: VaeRecipe) -> None:
        self.recipe, self.vae = recipe, build_vae(recipe)
        optimisers = optimisers_for(self.vae, recipe.learning_rate)
        super().__init__(recipe.steps, recipe.warmup, {"vae": self.vae}, optimisers)

    def _batch(self) -> Tensor:
        recipe = self.recipe
        rng = np.random.default_rng((recipe.seed, self.steps_done))
        if self.steps_done < recipe.crop_share * self.total_steps:
            return to_signal(crop_batch(rng, recipe.crop_batch, recipe.crop))
        return to_signal(scene_batch(rng, recipe.full_batch)[1])

    def step(self) -> Metrics:
        recipe = self.recipe
        noise = torch.Generator().manual_seed(seed_for(recipe.seed, self.steps_done))
        signal = self._batch()
        mean = self.vae.encode(signal).latent_dist.mean
        latent = mean + recipe.latent_noise * torch.randn(mean.shape, generator=noise)
        error = self.vae.decode(latent).sample - signal
        loss = reconstruction_loss(error, recipe) + recipe.mean_weight * mean.square().mean()
        loss.backward()
        self._update()
        mse = error.detach().square().mean().item()
        return {"loss": loss.item(), "psnr": psnr(mse), "rms": mean.detach().square().mean().sqrt().item()}

    def evaluate(self) -> Metrics:
        return {"held_out_psnr": held_out_psnr(self.vae, self.recipe.seed)}

    def export(self, folder: Path) -> None:
        export_vae(self.vae, self.recipe, folder)


def export_vae(vae: AutoencoderKL, recipe: VaeRecipe, folder: Path) -> None:
    """Write ``folder/vae`` with the shift and scale that make its latents standard."""
    mean, deviation = latent_statistics(vae, recipe.seed)
    vae.register_to_config(scaling_factor=1.0 / deviation, shift_factor=mean)
    vae.save_pretrained(folder / "vae")


class PolishStage(Stage):
    """The decoder trained on, the encoder frozen: latents stay what the denoiser knows, pictures get
    crisper.
    """

    name = "image_polish"

    def __init__(self, vae: AutoencoderKL, recipe: PolishRecipe, base: VaeRecipe) -> None:
        self.recipe, self.base, self.vae = recipe, base, vae
        vae.encoder.requires_grad_(False)
        vae.decoder.requires_grad_(True)
        optimisers = optimisers_for(vae.decoder, recipe.learning_rate)
        super().__init__(recipe.steps, recipe.warmup, {"vae": vae}, optimisers)

    def step(self) -> Metrics:
        recipe = self.recipe
        rng = np.random.default_rng((recipe.seed, self.steps_done))
        generator = torch.Generator().manual_seed(seed_for(recipe.seed, self.steps_done))
        signal = to_signal(balanced_batch(rng, recipe.batch, recipe.spread))
        with torch.no_grad():
            mean = self.vae.encode(signal).latent_dist.mean
        deviation = recipe.most_noise * torch.rand(recipe.batch, 1, 1, 1, generator=generator)
        error = (
            self.vae.decode(mean + deviation * torch.randn(mean.shape, generator=generator)).sample - signal
        )
        loss = reconstruction_loss(error, self.base)
        loss.backward()
        self._update()
        return {"loss": loss.item(), "psnr": psnr(error.detach().square().mean().item())}

    def evaluate(self) -> Metrics:
        return {"held_out_psnr": held_out_psnr(self.vae, self.base.seed)}

    def export(self, folder: Path) -> None:
        export_vae(self.vae, self.base, folder)


def psnr(mse: float) -> float:
    """dB for a mean squared error of signals in [-1, 1] (peak-to-peak 2)."""
    return 10.0 * math.log10(4.0 / max(mse, 1e-12))
