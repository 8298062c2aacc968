"""The parameters of `wan-i2v`: what a recipe fills in and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from mutoscope.models.registry import get_card
from mutoscope.models.wan.card import CARD, WanRecipe
from mutoscope.platform.errors import InvalidParameter

STARTER = WanRecipe(
    height=64, width=64, sizes=((64, 64),), num_frames=17, frame_counts=(17,), fps=8, negative_prompt="blurry"
)
RELEASED = WanRecipe(boundary_ratio=0.9)


def test_the_registry_knows_the_card() -> None:
    assert get_card("wan-i2v") is CARD


def test_a_prompt_alone_is_enough() -> None:
    assert CARD.resolve({"prompt": "a red circle"}, STARTER) == {
        "prompt": "a red circle",
        "negative_prompt": "blurry",
        "height": 64,
        "width": 64,
        "num_frames": 17,
        "fps": 8,
        "num_inference_steps": 50,
        "guidance_scale": 5.0,
        "guidance_scale_2": None,
        "max_sequence_length": 512,
        "vae_tile": 0,
    }


def test_resolving_twice_changes_nothing() -> None:
    once = CARD.resolve({"prompt": "a", "guidance_scale_2": 2.0}, RELEASED)
    assert CARD.resolve(once, RELEASED) == once
    assert once["guidance_scale_2"] == 2.0


@pytest.mark.parametrize(
    ("recipe", "given", "line"),
    [
        (STARTER, {}, "prompt=None is not valid: prompt is required; pass prompt=..."),
        (STARTER, {"num_frames": 33}, "num_frames=33 is not valid: these weights make 17"),
        (STARTER, {"height": 128}, "size='64x128' is not valid: wan-i2v makes 64x64 (width x height)"),
        (RELEASED, {"num_frames": 16}, "num_frames=16 is not valid: use 13 or 17 (a multiple of 4, plus 1)"),
        (RELEASED, {"num_frames": 2}, "num_frames=2 is not valid: use 1 or 5 (a multiple of 4, plus 1)"),
        (RELEASED, {"width": 840}, "width=840 is not valid: use a multiple of 16"),
        (
            STARTER,
            {"guidance_scale_2": 2.0},
            "guidance_scale_2=2.0 is not valid: leave it out: these weights have a single transformer",
        ),
    ],
)
def test_refusals_name_field_value_and_remedy(recipe: WanRecipe, given: dict[str, Any], line: str) -> None:
    asked = {"prompt": "a red circle", **given} if given else {}
    with pytest.raises(InvalidParameter) as caught:
        CARD.resolve(asked, recipe)
    assert str(caught.value) == line


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("prompt", ""),
        ("num_inference_steps", -1),
        ("num_inference_steps", 0),
        ("num_inference_steps", "many"),
        ("num_frames", 0),
        ("fps", 0),
        ("guidance_scale", float("nan")),
        ("guidance_scale", -1.0),
        ("max_sequence_length", 0),
        ("image_strength", 0.5),
    ],
)
def test_impossible_values_are_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(InvalidParameter) as caught:
        CARD.resolve({"prompt": "a red circle", field: value}, RELEASED)
    assert caught.value.field == field
