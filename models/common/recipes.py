"""Recipes of cards that make no pictures. No torch."""

from __future__ import annotations

from mutoscope.platform.engine.card import Recipe


class TextRecipe(Recipe):
    """Base for cards that write text: a recipe's picture fields have no meaning here and are given neutral
    values.
    """

    height: int = 0
    width: int = 0
    num_inference_steps: int = 1
    guidance_scale: float = 1.0
    max_sequence_length: int = 1
