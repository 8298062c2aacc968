"""The image model from nothing: autoencoder, its decoder polished, text encoders, denoiser, in that order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mutoscope.models.starter.curriculum import Curriculum
from mutoscope.models.starter.image_dit import DitStage, LatentBank
from mutoscope.models.starter.image_recipe import ImageRecipe
from mutoscope.models.starter.image_vae import PolishStage, VaeStage
from mutoscope.models.starter.stage import Stage
from mutoscope.models.starter.text import TextStage


def configure(seed: int, parameters: Mapping[str, Any]) -> ImageRecipe:
    """The recipe with its stages seeded from ``seed`` on and the step counts that ``parameters`` sets.

    ``seed`` 11 gives the seeds of the shipped weights.
    """
    recipe = ImageRecipe()
    return ImageRecipe(
        vae=replace(recipe.vae, seed=seed, steps=parameters["vae_steps"] or recipe.vae.steps),
        polish=replace(recipe.polish, seed=seed + 4, steps=parameters["polish_steps"] or recipe.polish.steps),
        text=replace(recipe.text, seed=seed + 1, steps=parameters["text_steps"] or recipe.text.steps),
        dit=replace(
            recipe.dit,
            seed=seed + 2,
            bank_seed=seed + 3,
            steps=parameters["dit_steps"] or recipe.dit.steps,
            bank_size=parameters["bank_size"] or recipe.dit.bank_size,
        ),
    )


def lengths(recipe: ImageRecipe) -> dict[str, int]:
    """Steps of each stage, by its name, in order."""
    return {
        VaeStage.name: recipe.vae.steps,
        PolishStage.name: recipe.polish.steps,
        TextStage.name: recipe.text.steps,
        DitStage.name: recipe.dit.steps,
    }


def stages(recipe: ImageRecipe, workdir: Path) -> Iterator[Stage]:
    """The stages in order. Each is made when the one before it is done, on which it builds."""
    autoencoder = VaeStage(recipe.vae)
    yield autoencoder
    yield PolishStage(autoencoder.vae, recipe.polish, recipe.vae)
    text = TextStage(recipe.text)
    yield text
    bank = LatentBank.build(autoencoder.vae.requires_grad_(False), recipe.dit, workdir / "image_latents.pt")
    yield DitStage(autoencoder.vae, text.stack, bank, recipe.dit, recipe.text)


CURRICULUM = Curriculum(
    recipe=ImageRecipe(),
    configure=configure,
    lengths=lengths,
    stages=stages,
    shares={"image_vae": 0.16, "image_text": 0.05, "image_polish": 0.07, "image_dit": 0.72},
)
