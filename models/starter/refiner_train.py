"""The refiner from nothing, in one stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mutoscope.models.starter.curriculum import Curriculum
from mutoscope.models.starter.refiner_lm import RefinerStage
from mutoscope.models.starter.refiner_recipe import RefinerLmRecipe
from mutoscope.models.starter.stage import Stage


def configure(seed: int, parameters: Mapping[str, Any]) -> RefinerLmRecipe:
    """The recipe seeded with ``seed`` and with the step count that ``parameters`` sets.

    ``seed`` 31 gives the seed of the shipped weights.
    """
    recipe = RefinerLmRecipe()
    return replace(recipe, seed=seed, steps=parameters["lm_steps"] or recipe.steps)


def lengths(recipe: RefinerLmRecipe) -> dict[str, int]:
    """Steps of the only stage, by its name."""
    return {RefinerStage.name: recipe.steps}


def stages(recipe: RefinerLmRecipe, workdir: Path) -> Iterator[Stage]:
    """The only stage."""
    yield RefinerStage(recipe)


CURRICULUM = Curriculum(
    recipe=RefinerLmRecipe(),
    configure=configure,
    lengths=lengths,
    stages=stages,
    shares={RefinerStage.name: 1.0},
)
