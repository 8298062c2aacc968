"""Last training of the video decoder: pictures from latents as the trained denoiser leaves them.

Encoder and denoiser stay as they are.  A clean latent is noised, the denoiser's estimate of the clean one,
``x_0 = x_s - s v``, is decoded, and the decoder learns to draw the true clip from it.  Estimates from low and
middling noise carry the errors that sampling ends with, while still belonging to a clip that is known.
"""

from __future__ import annotations

from pathlib import Path

import torch
from diffusers import AutoencoderKLWan, WanTransformer3DModel

from mutoscope.models.starter.muon import optimisers_for
from mutoscope.models.starter.stage import Average, Metrics, Stage, seed_for
from mutoscope.models.starter.video_bank import CHUNK, ClipBank, condition, denormalised, draw_chunk
from mutoscope.models.starter.video_folder import write_folder
from mutoscope.models.starter.video_recipe import VideoRecipe
from mutoscope.models.starter.video_text import CaptionEncoder
from mutoscope.models.starter.video_vae import decode_clip, lean, psnr, reconstruction_loss


class VideoPolishStage(Stage):
    """Decoder-only training; latents, and with them the denoiser, keep their meaning."""

    name = "video_polish"

    def __init__(
        self, bank: ClipBank, captions: CaptionEncoder, dit: WanTransformer3DModel, recipe: VideoRecipe
    ) -> None:
        self.recipe, self.config = recipe, recipe.polish
        self.bank = bank
        self.vae = bank.vae.eval().requires_grad_(False)
        for part in (self.vae.decoder, self.vae.post_quant_conv):
            part.requires_grad_(True)
        self.captions = captions.eval().requires_grad_(False)
        self.dit = dit.eval().requires_grad_(False)
        self.average = Average(self.vae, self.config.average)
        optimisers = optimisers_for(self.vae, self.config.learning_rate)
        trained = {"vae": self.vae}
        super().__init__(self.config.total_steps, self.config.warmup, trained, optimisers, self.average)

    @torch.no_grad()
    def estimates(self, bank: ClipBank, rows: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """What the denoiser takes the clean latents to be, on the decoder's scale (B, Z, L, h, w)."""
        low, high = self.config.least_noise, self.config.most_noise
        level = low + (high - low) * torch.rand(len(rows), 1, 1, 1, 1, generator=generator)
        clean = bank.latents[rows]
        mixed = (1 - level) * clean + level * torch.randn(clean.shape, generator=generator)
        text, _ = self.captions([bank.captions[row] for row in rows.tolist()])
        model_input = torch.cat([mixed, condition(bank.images[rows])], dim=1)
        velocity = self.dit(model_input, level.flatten() * 1000.0, text, return_dict=False)[0]
        return denormalised(self.vae, mixed - level * velocity)

    def _batch(
        self, bank: ClipBank, generator: torch.Generator, count: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Estimates of ``count`` clips of one chunk, and the true clips (B, 3, T, H, W)."""
        chunk = int(torch.randint(len(bank) // CHUNK, (), generator=generator))
        places = torch.randperm(CHUNK, generator=generator)[:count]
        clips, _, _ = draw_chunk(bank.seed, chunk)
        return self.estimates(bank, chunk * CHUNK + places, generator), clips[places]

    def step(self) -> Metrics:
        """One batch through the decoder."""
        config = self.config
        generator = torch.Generator().manual_seed(seed_for(config.seed, self.steps_done))
        latents, clips = self._batch(self.bank, generator, config.batch)
        with lean(self.vae):
            output = decode_clip(self.vae, latents)
            loss = reconstruction_loss(output, clips, self.recipe.vae)
            loss.backward()
        self._update()
        return {"loss": loss.item(), "psnr": psnr(output.detach(), clips).mean().item()}

    def averaged(self) -> AutoencoderKLWan:
        """The autoencoder with the averaged decoder."""
        vae = AutoencoderKLWan.from_config(self.vae.config).eval().requires_grad_(False)
        vae.load_state_dict(self.average.shadow)
        return vae

    @torch.no_grad()
    def evaluate(self) -> Metrics:
        """PSNR on one chunk of clips that no stage trains on."""
        bank = ClipBank(self.vae, self.recipe.dit.bank_seed + 1, CHUNK)
        bank.grow(CHUNK)
        latents, clips = self._batch(
            bank, torch.Generator().manual_seed(seed_for(self.config.seed, 0, 9)), CHUNK
        )
        output = decode_clip(self.averaged(), latents)
        return {
            "unseen_psnr": psnr(output, clips).mean().item(),
            "unseen_first": psnr(output[:, :, 0], clips[:, :, 0]).mean().item(),
        }

    def export(self, folder: Path) -> None:
        """Write the whole folder anew, with the polished decoder."""
        write_folder(folder, self.averaged(), self.captions, self.dit, self.recipe.dit)
