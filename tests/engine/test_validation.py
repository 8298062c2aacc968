"""Requests that are refused, each with the field, the value and the remedy in one line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mutoscope.platform.engine.card import Slot
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.request import Profile, Request
from mutoscope.platform.engine.validation import check_inputs, check_seed, checked_request
from mutoscope.platform.errors import InvalidParameter
from tests.engine.toy import CARD, RECIPE, toy_instance, toy_request

IMAGE = np.zeros((8, 8, 3), np.uint8)


def with_inputs(**inputs: Any) -> Request:
    return replace(toy_request(), inputs=inputs)


REFUSED: dict[str, tuple[Request, str]] = {
    "card": (replace(toy_request(), card="other"), "card='other' is not valid: this instance serves toy"),
    "profile": (replace(toy_request(), profile=Profile.TRAIN), "profile='train' .* runs under serve"),
    "negative seed": (toy_request(seed=-1), r"seed=-1 is not valid: use an integer from 0 to 2\*\*63 - 1"),
    "huge seed": (toy_request(seed=2**63), "seed=9223372036854775808 is not valid"),
    "float seed": (toy_request(seed=1.0), "seed=1.0 is not valid"),  # type: ignore[arg-type]
    "bool seed": (toy_request(seed=True), "seed=True is not valid"),
    "no share": (replace(toy_request(), priority=0), "priority=0 is not valid: use a number greater than 0"),
    "endless share": (replace(toy_request(), priority=float("inf")), "priority=inf is not valid"),
    "no number": (replace(toy_request(), priority=float("nan")), "priority=nan is not valid"),
    "text seed": (toy_request(seed="7"), "seed='7' is not valid"),  # type: ignore[arg-type]
    "slot": (with_inputs(picture=IMAGE), r"picture='uint8 \(8, 8, 3\)' .* toy takes image, video, note"),
    "dtype": (
        with_inputs(image=IMAGE.astype(np.float32)),
        r"image='float32 .* uint8 array \(height, width, 3\)",
    ),
    "grey": (with_inputs(image=IMAGE[..., 0]), r"image='uint8 \(8, 8\)'"),
    "rgba": (with_inputs(image=np.zeros((8, 8, 4), np.uint8)), r"image='uint8 \(8, 8, 4\)'"),
    "empty": (with_inputs(image=np.zeros((0, 8, 3), np.uint8)), r"image='uint8 \(0, 8, 3\)'"),
    "no array": (with_inputs(image="cat.png"), "image='cat.png'"),
    "video": (with_inputs(video=IMAGE), r"video='uint8 \(8, 8, 3\)' .* \(frames, height, width, 3\)"),
    "text": (with_inputs(note=3), "note=3 is not valid: use text"),
    "parameter": (toy_request(stepz=3), "stepz=3 is not valid: toy takes prompt, height"),
    "no prompt": (
        Request("r", "toy", {}, {}, 0),
        "prompt=None is not valid: prompt is required; pass prompt=...",
    ),
    "steps": (toy_request(num_inference_steps=-2), "num_inference_steps=-2 is not valid: use 1 or more"),
    "height": (toy_request(height=10), "height=10 is not valid: use a multiple of 4"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    request, message = REFUSED[name]
    engine = Engine()
    with pytest.raises(InvalidParameter, match=message) as caught:
        engine.submit(toy_instance(), request)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2
    assert len(engine) == 0


def test_a_required_input_that_is_missing() -> None:
    card = replace(CARD, inputs=(replace(CARD.inputs[0], required=True),))
    with pytest.raises(
        InvalidParameter, match=r"image=None .* toy needs this input of kind image; pass image=\.\.\."
    ):
        checked_request(card, RECIPE, toy_request())


def test_sizes_that_are_listed_are_the_only_ones() -> None:
    recipe = RECIPE.model_copy(update={"sizes": ((8, 8), (8, 16))})
    assert CARD.resolve({"prompt": "x", "height": 8, "width": 16}, recipe)["width"] == 16
    with pytest.raises(InvalidParameter, match=r"size='32x8' .* toy makes 8x8, 16x8 \(width x height\)"):
        CARD.resolve({"prompt": "x", "height": 8, "width": 32}, recipe)


def test_weights_without_guidance_refuse_it() -> None:
    """Asked for, or a default that cannot be; 1 and below turn guidance off and are fine."""
    recipe = RECIPE.model_copy(update={"supports_guidance": False})
    assert CARD.resolve({"prompt": "x"}, recipe)["guidance_scale"] == 1.0
    assert CARD.resolve({"prompt": "x", "guidance_scale": 0.5}, recipe)["guidance_scale"] == 0.5
    line = r"guidance_scale=3.0 is not valid: use 1: these weights do not support classifier-free guidance"
    with pytest.raises(InvalidParameter, match=line):
        CARD.resolve({"prompt": "x", "guidance_scale": 3.0}, recipe)
    with pytest.raises(InvalidParameter, match=line):
        CARD.resolve({"prompt": "x"}, recipe.model_copy(update={"guidance_scale": 3.0}))


def test_parameters_left_out_take_the_recipes_values() -> None:
    request = checked_request(CARD, RECIPE, toy_request(guidance_scale=2))
    assert request.parameters == {
        "prompt": "a red circle",
        "height": 8,
        "width": 8,
        "num_inference_steps": 3,
        "guidance_scale": 2.0,
        "fail_at": -1,
    }
    assert isinstance(request.parameters["guidance_scale"], float)  # 2 and 2.0 are one value of a memo key
    assert checked_request(CARD, RECIPE, request) == request


@pytest.mark.parametrize("seed", [0, 7, 2**63 - 1])
def test_seeds(seed: int) -> None:
    assert check_seed(seed) == seed


SOUNDS: dict[str, tuple[Any, str]] = {
    "samples first": (
        np.zeros((100, 2), np.float32),
        r"float32 \(100, 2\)' .* \(channels, samples\), 1 or 2",
    ),
    "float64": (np.zeros((2, 100)), r"float64 \(2, 100\)' .* use a float32 array"),
    "empty": (np.zeros((1, 0), np.float32), r"float32 \(1, 0\)' .* use a float32 array"),
    "nan": (np.array([[0, np.nan]], np.float32), r"float32 \(1, 2\)' .* use finite samples from -1 to 1"),
    "loud": (np.array([[0, 1.5]], np.float32), "use finite samples from -1 to 1"),
}


@pytest.mark.parametrize("name", SOUNDS)
def test_sounds_that_are_refused(name: str) -> None:
    card = replace(CARD, inputs=(Slot("sound", "audio", "What is heard."),))
    value, line = SOUNDS[name]
    check_inputs(card, {"sound": np.zeros((2, 100), np.float32)})
    with pytest.raises(InvalidParameter, match=rf"sound='{line}" if line.startswith("float") else line):
        check_inputs(card, {"sound": value})
