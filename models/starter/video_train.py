"""The video model from nothing to a folder: autoencoder, text encoder, denoiser, decoder polish."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from diffusers import AutoencoderKLWan, WanTransformer3DModel
from transformers import UMT5EncoderModel

from mutoscope.models.starter.curriculum import Curriculum
from mutoscope.models.starter.stage import Stage
from mutoscope.models.starter.video_dit import VideoDitStage
from mutoscope.models.starter.video_polish import VideoPolishStage
from mutoscope.models.starter.video_recipe import VideoRecipe
from mutoscope.models.starter.video_text import CaptionEncoder, VideoTextStage
from mutoscope.models.starter.video_vae import VideoVaeStage


def configure(seed: int, parameters: Mapping[str, Any]) -> VideoRecipe:
    """The recipe with its stages seeded from ``seed`` on and the step counts that ``parameters`` sets.

    ``seed`` 20 gives the seeds of the shipped weights.
    """
    recipe = VideoRecipe()
    bank_size = parameters["bank_size"] or recipe.dit.bank_size
    return VideoRecipe(
        vae=replace(recipe.vae, seed=seed, total_steps=parameters["vae_steps"] or recipe.vae.total_steps),
        text=replace(
            recipe.text, seed=seed + 1, total_steps=parameters["text_steps"] or recipe.text.total_steps
        ),
        dit=replace(
            recipe.dit,
            seed=seed + 2,
            bank_seed=seed + 3,
            total_steps=parameters["dit_steps"] or recipe.dit.total_steps,
            bank_size=bank_size,
            bank_start=min(bank_size, recipe.dit.bank_start),
        ),
        polish=replace(
            recipe.polish,
            seed=seed + 4,
            total_steps=parameters["polish_steps"] or recipe.polish.total_steps,
        ),
    )


def lengths(recipe: VideoRecipe) -> dict[str, int]:
    """Steps of each stage, by its name, in order."""
    return {
        VideoVaeStage.name: recipe.vae.total_steps,
        VideoTextStage.name: recipe.text.total_steps,
        VideoDitStage.name: recipe.dit.total_steps,
        VideoPolishStage.name: recipe.polish.total_steps,
    }


def stages(recipe: VideoRecipe, workdir: Path) -> Iterator[Stage]:
    """The stages in order. Each is made when the one before it is done, on which it builds."""
    autoencoder = VideoVaeStage(recipe.vae)
    yield autoencoder
    autoencoder.export(workdir)
    text = VideoTextStage(recipe.text)
    yield text
    yield from _denoising(
        VideoDitStage(_vae(workdir), text.captions, recipe, workdir / "video_bank.pt"), recipe
    )


def onward(recipe: VideoRecipe, workdir: Path, folder: Path) -> Iterator[Stage]:
    """The denoiser and the decoder's polish once more, from the weights in ``folder``; its encoder stays."""
    recipe = replace(recipe, dit=recipe.onward)
    captions = CaptionEncoder(recipe.text)
    captions.encoder.load_state_dict(UMT5EncoderModel.from_pretrained(folder / "text_encoder").state_dict())
    dit = WanTransformer3DModel.from_pretrained(folder / "transformer")
    yield from _denoising(
        VideoDitStage(_vae(folder), captions, recipe, workdir / "video_bank.pt", dit), recipe
    )


def _vae(folder: Path) -> AutoencoderKLWan:
    vae = AutoencoderKLWan.from_pretrained(folder / "vae")
    # Where it was trained is nobody's business, and would make equal weights differ.
    vae.register_to_config(_name_or_path="")
    return vae


def _denoising(denoiser: VideoDitStage, recipe: VideoRecipe) -> Iterator[Stage]:
    yield denoiser
    dit, captions = denoiser.averaged()
    yield VideoPolishStage(denoiser.bank, captions, dit, recipe)


CURRICULUM = Curriculum(
    recipe=VideoRecipe(),
    configure=configure,
    lengths=lengths,
    stages=stages,
    onward=onward,
    shares={"video_vae": 0.45, "video_text": 0.03, "video_dit": 0.40, "video_polish": 0.12},
)
