"""Inspection of a scene scorer's folder, without torch."""

from __future__ import annotations

from pathlib import Path

from mutoscope.models.common.folder import inspect_folder, read_recipe
from mutoscope.models.reward.common.parameters import RewardRecipe
from mutoscope.models.reward.scene.card import CARD
from mutoscope.models.starter.grammar import BACKGROUNDS, COLOURS, SHAPES
from mutoscope.platform.engine.card import FolderSummary
from mutoscope.platform.errors import InvalidFolder

PIPELINE = "SceneReward"


def inspect(folder: Path) -> FolderSummary:
    """Check a folder of weights and read its recipe. Raises InvalidFolder."""
    contents = inspect_folder(folder, CARD.components, (PIPELINE,))
    config = contents.configs["scorer"]
    for field, words in (("colours", COLOURS), ("shapes", SHAPES), ("backgrounds", BACKGROUNDS)):
        unknown = sorted(set(words) - set(config.get(field, ())))
        if unknown:
            raise InvalidFolder(
                f"{folder / 'scorer'} knows no {unknown[0]} among its {field}: train it again on the grammar"
            )
    recipe = read_recipe(folder, RewardRecipe, {})
    return FolderSummary(folder=folder, components=contents.files, recipe=recipe, classes=contents.classes)
