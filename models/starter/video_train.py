"""The video model from nothing to a folder: autoencoder, text encoder, denoiser, decoder polish.

Every stage leaves a checkpoint in the work folder, so a stopped training continues where it was.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from diffusers import AutoencoderKLWan

from mutoscope.models.starter.stage import Stage, run
from mutoscope.models.starter.video_dit import VideoDitStage
from mutoscope.models.starter.video_polish import VideoPolishStage
from mutoscope.models.starter.video_recipe import VideoRecipe
from mutoscope.models.starter.video_text import VideoTextStage
from mutoscope.models.starter.video_vae import VideoVaeStage

SHARE = {"video_vae": 0.45, "video_text": 0.03, "video_dit": 0.40, "video_polish": 0.12}
"""How a time budget is divided."""
RECIPE = VideoRecipe()


def train(
    folder: Path,
    workdir: Path,
    *,
    recipe: VideoRecipe = RECIPE,
    minutes: float | None = None,
    say: Callable[[str], None] = print,
) -> None:
    """Train all stages and write the pipeline folder.

    Without ``minutes`` every stage runs the steps of its recipe; with it, the steps that fit.
    """
    torch.set_num_threads(1)

    def finish(stage: Stage) -> None:
        budget = None if minutes is None else minutes * SHARE[stage.name]
        run(stage, workdir, minutes=budget, say=say)

    autoencoder = VideoVaeStage(recipe.vae)
    finish(autoencoder)
    autoencoder.export(workdir)
    vae = AutoencoderKLWan.from_pretrained(workdir / "vae")
    text = VideoTextStage(recipe.text)
    finish(text)
    denoiser = VideoDitStage(vae, text.captions, recipe, cache=workdir / "video_bank.pt")
    finish(denoiser)
    denoiser.export(folder)
    dit, captions = denoiser.averaged()
    polish = VideoPolishStage(denoiser.bank, captions, dit, recipe)
    finish(polish)
    polish.export(folder)
