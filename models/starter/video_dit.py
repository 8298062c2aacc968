"""Training the denoiser: WanTransformer3DModel with the image-to-video layout, on latents of the bank.

Flow matching: ``x_s = (1 - s) x_0 + s noise``, target velocity ``noise - x_0`` (Lipman et al., "Flow
matching for generative modeling", 2023).  Noise levels are uniform, then shifted as the folder's scheduler
shifts them, ``s = shift u / (1 + (shift - 1) u)``, so training dwells where sampling does.

Shape legend: B clips, Z latent channels, L latent frames, h and w latent cells.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from diffusers import AutoencoderKLWan, WanTransformer3DModel
from torch import nn

from mutoscope.models.starter.muon import optimisers_for
from mutoscope.models.starter.stage import Average, Metrics, Stage, seed_for
from mutoscope.models.starter.video_bank import LATENT_FRAMES, ClipBank, condition
from mutoscope.models.starter.video_folder import write_folder
from mutoscope.models.starter.video_recipe import VideoDitConfig, VideoRecipe
from mutoscope.models.starter.video_text import CaptionEncoder

WATCHED = 64
"""Held-out entries on which ``evaluate`` measures the velocity loss."""


def build_dit(config: VideoDitConfig, text_width: int) -> WanTransformer3DModel:
    """The untrained denoiser, seeded; blocks start as identities and the velocity as zero."""
    torch.manual_seed(config.seed)
    dit = WanTransformer3DModel(**config.architecture(text_width))
    for layer in (dit.condition_embedder.time_proj, dit.proj_out):
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
    for block in dit.blocks:
        nn.init.zeros_(block.scale_shift_table)
        nn.init.zeros_(block.attn2.to_out[0].weight)
    return dit


def noise_levels(count: int, shift: float, generator: torch.Generator) -> torch.Tensor:
    """Noise levels (count,) in (0, 1), one per stratum so that a batch covers all of them."""
    uniform = (torch.arange(count) + torch.rand(count, generator=generator)) / count
    return shift * uniform / (1 + (shift - 1) * uniform)


class VideoDitStage(Stage):
    """Velocity regression; the averaged weights are what ships.

    Args:
        cache: where the bank is kept between processes.
        dit: a denoiser to go on from, instead of an untrained one.
    """

    name = "video_dit"

    def __init__(
        self,
        vae: AutoencoderKLWan,
        captions: CaptionEncoder,
        recipe: VideoRecipe,
        cache: Path | None = None,
        dit: WanTransformer3DModel | None = None,
    ) -> None:
        config = recipe.dit
        self.config, self.text_config = config, recipe.text
        self.vae = vae.eval().requires_grad_(False)
        self.captions = captions.eval()
        self.dit = dit or build_dit(config, recipe.text.width)
        self.parts = nn.ModuleDict({"dit": self.dit, "text": captions.encoder})
        self.average = Average(self.parts, config.average)
        # The encoder has learned its task already; it follows the denoiser slowly, and by Adam, since much of
        # it is an embedding, whose rows are no matrix to orthogonalise.
        text = torch.optim.Adam(
            captions.encoder.parameters(), lr=config.text_learning_rate, betas=(0.9, 0.98)
        )
        optimisers = [*optimisers_for(self.dit, config.learning_rate), text]
        super().__init__(config.total_steps, config.warmup, {"parts": self.parts}, optimisers, self.average)
        self.cache = cache
        self.bank = ClipBank(self.vae, config.bank_seed, config.bank_size)
        if cache is not None and cache.exists():
            self.bank.load(cache)

    def _loss(
        self,
        dit: WanTransformer3DModel,
        captions: CaptionEncoder,
        bank: ClipBank,
        rows: torch.Tensor,
        said: list[str],
        generator: torch.Generator,
    ) -> torch.Tensor:
        """Squared velocity error per latent frame (L,)."""
        clean = bank.latents[rows]
        level = noise_levels(len(rows), self.config.shift, generator)
        noise = torch.randn(clean.shape, generator=generator)
        weight = level.view(-1, 1, 1, 1, 1)
        mixed = (1 - weight) * clean + weight * noise
        text, _ = captions(said)
        model_input = torch.cat([mixed, condition(bank.images[rows])], dim=1)
        velocity = dit(model_input, level * 1000.0, text, return_dict=False)[0]
        return (velocity - (noise - clean)).square().mean(dim=(0, 1, 3, 4))

    def step(self) -> Metrics:
        """One batch; the bank grows by one chunk of clips a step until it is full."""
        config = self.config
        self.bank.grow(self.bank_target())
        rng = np.random.default_rng(seed_for(config.seed, self.steps_done))
        generator = torch.Generator().manual_seed(seed_for(config.seed, self.steps_done, 1))
        rows = torch.from_numpy(rng.integers(self.bank_target(), size=config.batch))
        dropped = rng.random(config.batch) < config.caption_drop
        said = [
            "" if drop else self.bank.captions[row] for row, drop in zip(rows.tolist(), dropped, strict=True)
        ]
        per_frame = self._loss(self.dit, self.captions, self.bank, rows, said, generator)
        weight = torch.ones(LATENT_FRAMES)
        weight[0] = config.first_frame_weight
        loss = (per_frame * weight).sum() / weight.sum()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.parts.parameters(), 5.0)
        self._update()
        return {
            "loss": loss.item(),
            "first": per_frame[0].item(),
            "last": per_frame[-1].item(),
            "norm": norm.item(),
        }

    def bank_target(self) -> int:
        """Entries in use at this step: of the step alone, so that a resumed run draws the same rows."""
        config = self.config
        return min(len(self.bank.latents), config.bank_start + config.bank_growth * self.steps_done)

    def averaged(self) -> tuple[WanTransformer3DModel, CaptionEncoder]:
        """Denoiser and caption encoder with averaged weights, frozen."""
        captions = CaptionEncoder(self.text_config)
        parts = nn.ModuleDict(
            {"dit": build_dit(self.config, self.text_config.width), "text": captions.encoder}
        )
        parts.load_state_dict(self.average.shadow)
        parts.eval().requires_grad_(False)
        return parts["dit"], captions

    @torch.no_grad()
    def evaluate(self) -> Metrics:
        """Velocity loss of the averaged weights on clips that are never trained on."""
        bank = ClipBank(self.vae, self.config.bank_seed + 1, WATCHED)
        bank.grow(WATCHED)
        generator = torch.Generator().manual_seed(seed_for(self.config.seed, 0, 9))
        dit, captions = self.averaged()
        per_frame = self._loss(dit, captions, bank, torch.arange(WATCHED), bank.captions, generator)
        if self.cache is not None:
            self.bank.save(self.cache)
        return {"unseen_loss": per_frame.mean().item(), "unseen_first": per_frame[0].item()}

    def export(self, folder: Path) -> None:
        """Write the whole folder: by now every part is there."""
        dit, captions = self.averaged()
        write_folder(folder, self.vae, captions, dit, self.config)
