"""The image model's denoiser: FluxTransformer2DModel on cached latents, text encoders frozen after binding.

Flow matching: ``x_sigma = (1 - sigma) x_0 + sigma noise``, target velocity ``noise - x_0``, loss their mean
square.  Sigmas are logit-normal, then shifted like the scheduler of the folder shifts them (Esser et al.
2024, eq. 23), so training dwells where sampling does.

Shapes: latents (B, 8, 8, 8), packed by 2x2 into tokens (B, 16, 32) in the order FluxPipeline packs them.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import AutoencoderKL, FlowMatchEulerDiscreteScheduler, FluxPipeline, FluxTransformer2DModel
from torch import Tensor, nn

from mutoscope.models.starter.grammar import BACKGROUNDS, MOTIONS, Scene, paraphrase
from mutoscope.models.starter.image_recipe import DitRecipe, TextRecipe
from mutoscope.models.starter.image_vae import latent_statistics, scene_batch, to_signal
from mutoscope.models.starter.muon import Muon
from mutoscope.models.starter.stage import Average, Metrics, Stage, seed_for
from mutoscope.models.starter.text import TextStack
from mutoscope.models.starter.tokenizer import MAX_TOKENS


def build_dit(recipe: DitRecipe, latent_channels: int, text_width: int) -> FluxTransformer2DModel:
    """The untrained denoiser: seeded, every modulation and the output start at zero, so blocks start as
    identity.
    """
    torch.manual_seed(recipe.seed)
    dit = FluxTransformer2DModel(
        patch_size=1,
        in_channels=4 * latent_channels,
        num_layers=recipe.double_blocks,
        num_single_layers=recipe.single_blocks,
        attention_head_dim=recipe.head_width,
        num_attention_heads=recipe.heads,
        joint_attention_dim=text_width,
        pooled_projection_dim=text_width,
        guidance_embeds=False,
        axes_dims_rope=recipe.rope_axes,
    )
    modulations = [dit.norm_out.linear, dit.proj_out]
    for block in dit.transformer_blocks:
        modulations += [block.norm1.linear, block.norm1_context.linear]
    modulations += [block.norm.linear for block in dit.single_transformer_blocks]
    for layer in modulations:
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
    return dit


def build_optimisers(dit: FluxTransformer2DModel, learning_rate: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices tokens pass through, Adam for the rest: vectors, modulations, embedders, output.

    Four iterations orthogonalise well enough, and orthogonalising is a third of a step at this size.
    """
    inner: list[nn.Parameter] = []
    outer: list[nn.Parameter] = []
    for name, parameter in dit.named_parameters():
        through = "transformer_blocks." in name and parameter.ndim == 2 and ".linear." not in name
        (inner if through else outer).append(parameter)
    return [
        Muon(inner, lr=learning_rate, iterations=4),
        torch.optim.Adam(outer, lr=learning_rate, betas=(0.9, 0.99)),
    ]


def build_scheduler(recipe: DitRecipe) -> FlowMatchEulerDiscreteScheduler:
    """A fixed shift: the starter draws one size, so resolution-dependent shifting has nothing to do."""
    return FlowMatchEulerDiscreteScheduler(shift=recipe.shift, use_dynamic_shifting=False)


def pack(latents: Tensor) -> Tensor:
    """(B, C, H, W) to (B, H/2*W/2, 4C), the packing of FluxPipeline."""
    batch, channels, height, width = latents.shape
    return FluxPipeline._pack_latents(latents, batch, channels, height, width)


def sampling_recipe(recipe: DitRecipe) -> dict[str, Any]:
    """How the folder wants to be sampled.  ``guidance_scale`` is true classifier-free guidance."""
    return {
        "height": 64,
        "width": 64,
        "sizes": [[64, 64]],
        "num_inference_steps": recipe.inference_steps,
        "guidance_scale": recipe.guidance,
        "negative_prompt": "",
        "max_sequence_length": MAX_TOKENS,
    }


class LatentBank:
    """Training pictures as normalised latents (N, 8, 8, 8) with their scenes, encoded once.

    Both are functions of the autoencoder and the seed alone, so the bank is a cache: safe to delete.
    ``shift`` and ``deviation`` are what the latents were normalised with, which the folder must state.
    """

    def __init__(self, scenes: list[Scene], latents: Tensor, shift: float, deviation: float) -> None:
        self.scenes, self.latents, self.shift, self.deviation = scenes, latents, shift, deviation
        self._rows: dict[int, list[np.ndarray]] = {1: [], 2: []}
        for count in self._rows:
            for background in BACKGROUNDS:
                rows = [
                    n for n, s in enumerate(scenes) if len(s.objects) == count and s.background == background
                ]
                if rows:
                    self._rows[count].append(np.array(rows))

    def draw(self, rng: np.random.Generator, count: int, single_share: float) -> np.ndarray:
        """``count`` row numbers, each of a one-object picture with probability ``single_share``.

        Every background comes equally often: white is what captions say most, but gray and black, where
        edges are faint, need as much practice.
        """
        kinds = [self._rows[1 if rng.random() < single_share else 2] for _ in range(count)]
        return np.array([rng.choice(kind[rng.integers(len(kind))]) for kind in kinds])

    @classmethod
    def build(cls, vae: AutoencoderKL, recipe: DitRecipe, cache: Path | None = None) -> LatentBank:
        chunk = 64
        draws = [np.random.default_rng((recipe.bank_seed, n)) for n in range(-(-recipe.bank_size // chunk))]
        shift, deviation = latent_statistics(vae, recipe.bank_seed)
        saved = torch.load(cache, weights_only=True) if cache is not None and cache.exists() else None
        scenes: list[Scene] = []
        parts: list[Tensor] = []
        with torch.no_grad():
            for rng in draws:
                drawn, pixels = scene_batch(rng, chunk, spread=recipe.spread)
                scenes += drawn
                if saved is None:
                    parts.append((vae.encode(to_signal(pixels)).latent_dist.mean - shift) / deviation)
        latents = torch.cat(parts) if saved is None else saved
        if cache is not None and saved is None:
            torch.save(latents, cache)
        return cls(scenes, latents, shift, deviation)


def _name_tokenizers_plainly(folder: Path) -> None:
    """transformers 5 writes its internal class name; the public alias opens in every version."""
    files = [folder / "model_index.json", *folder.glob("tokenizer*/tokenizer_config.json")]
    for file in files:
        file.write_text(file.read_text().replace('"TokenizersBackend"', '"PreTrainedTokenizerFast"'))


class DitStage(Stage):
    """Velocity regression on the bank; weights are averaged, and the average is what ships."""

    name = "image_dit"

    def __init__(
        self,
        vae: AutoencoderKL,
        stack: TextStack,
        bank: LatentBank,
        recipe: DitRecipe,
        text: TextRecipe,
    ) -> None:
        self.recipe, self.vae, self.bank = recipe, vae.eval(), bank
        self.stack = stack.eval().requires_grad_(False)
        self.dit = build_dit(recipe, vae.config.latent_channels, text.width)
        self.average = Average(self.dit, recipe.average_decay)
        side = 64 // 8 // 2
        self.image_ids = FluxPipeline._prepare_latent_image_ids(1, side, side, "cpu", torch.float32)
        self.text_ids = torch.zeros(MAX_TOKENS, 3)
        optimisers = build_optimisers(self.dit, recipe.learning_rate)
        super().__init__(recipe.steps, recipe.warmup, {"dit": self.dit}, optimisers, self.average)

    def _captions(self, rng: np.random.Generator, rows: np.ndarray) -> list[str]:
        """Each picture said in its own way each time: either side first, any motion, sometimes nothing at
        all.
        """
        captions = []
        for row in rows:
            motion = MOTIONS[rng.integers(len(MOTIONS))] if rng.random() < 0.5 else None
            caption = paraphrase(replace(self.bank.scenes[row], motion=motion), rng)
            captions.append("" if rng.random() < self.recipe.caption_drop else caption)
        return captions

    def step(self) -> Metrics:
        recipe = self.recipe
        rng = np.random.default_rng((recipe.seed, self.steps_done))
        generator = torch.Generator().manual_seed(seed_for(recipe.seed, self.steps_done))
        rows = self.bank.draw(rng, recipe.batch, recipe.single_share)
        with torch.no_grad():
            pooled, states = self.stack(*self.stack.ids(self._captions(rng, rows)))
        clean = pack(self.bank.latents[rows])
        noise = torch.randn(clean.shape, generator=generator)
        time = torch.sigmoid(torch.randn(recipe.batch, generator=generator))
        sigma = recipe.shift * time / (1 + (recipe.shift - 1) * time)
        noisy = torch.lerp(clean, noise, sigma[:, None, None])
        velocity = self.dit(
            hidden_states=noisy,
            timestep=sigma,
            pooled_projections=pooled,
            encoder_hidden_states=states,
            txt_ids=self.text_ids,
            img_ids=self.image_ids,
            return_dict=False,
        )[0]
        loss = (velocity - (noise - clean)).square().mean()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.dit.parameters(), 1.0)
        self._update()
        return {"loss": loss.item(), "grad_norm": norm.item()}

    def pipeline(self) -> FluxPipeline:
        """The model as it would ship now: averaged denoiser, statistics of the autoencoder in its config."""
        dit = FluxTransformer2DModel.from_config(self.dit.config)
        dit.load_state_dict(self.average.shadow)
        self.vae.register_to_config(scaling_factor=1.0 / self.bank.deviation, shift_factor=self.bank.shift)
        pipeline = FluxPipeline(
            scheduler=build_scheduler(self.recipe),
            vae=self.vae,
            text_encoder=self.stack.clip,
            tokenizer=self.stack.clip_tokenizer,
            text_encoder_2=self.stack.t5,
            tokenizer_2=self.stack.t5_tokenizer,
            transformer=dit.eval(),
        )
        pipeline.set_progress_bar_config(disable=True)
        return pipeline

    def evaluate(self) -> Metrics:
        """Checker figures on held-out captions, drawn as the folder would be."""
        from mutoscope.models.starter.evaluate import held_out_captions, score_images

        pipeline = self.pipeline()
        figures: Metrics = {}
        for objects in (1, 2):
            scores = score_images(
                pipeline, sampling_recipe(self.recipe), held_out_captions(objects, self.recipe.watch_captions)
            )
            figures |= {f"{key}_{objects}": value for key, value in scores.figures().items()}
        return figures

    def export(self, folder: Path) -> None:
        """The whole pipeline folder: model_index.json, every component, and how to sample it."""
        self.pipeline().save_pretrained(folder)
        _name_tokenizers_plainly(folder)
        (folder / "recipe.json").write_text(json.dumps(sampling_recipe(self.recipe), indent=2) + "\n")
