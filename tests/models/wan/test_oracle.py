"""Engine output equals diffusers' `WanImageToVideoPipeline`, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mutoscope.models.starter.folders import starter_folder
from mutoscope.models.wan.card import CARD
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance, load_instance
from mutoscope.platform.engine.request import Request, Result
from tests.models.wan.folders import EXPAND, LAYOUTS, PLAIN, SECOND, SECOND_UNIPC, Layout
from tests.models.wan.oracle import Expected, expect, load_pipeline
from tests.support.parts import few_now

PROMPT = " a  red circle drifting &amp;amp; right"
SEED = 7


def run(instance: Instance, image: NDArray[np.uint8], parameters: dict[str, Any]) -> Result:
    return Engine().run(instance, Request("r", CARD.id, {"image": image}, parameters, SEED))


def latents(result: Result) -> NDArray[np.float32]:
    value: NDArray[np.float32] = result.outputs["latent"].value["latents"]
    return value


def assert_equal(result: Result, expected: Expected) -> None:
    np.testing.assert_array_equal(latents(result), expected.latents, strict=True)
    np.testing.assert_array_equal(result.outputs["video"].value, expected.frames, strict=True)


@pytest.mark.parametrize(
    ("layout", "guidance"),
    few_now(product(LAYOUTS, [1.0, 3.0]), lambda layout, guidance: guidance > 1 or layout is PLAIN),
    ids=lambda given: given.name if isinstance(given, Layout) else f"guidance {given:g}",
)
def test_layouts_equal_the_pipeline(
    layout: Layout,
    guidance: float,
    folder_of: Callable[[Layout], Path],
    instance_of: Callable[[Layout], Instance],
    image: NDArray[np.uint8],
) -> None:
    instance = instance_of(layout)
    asked = {"prompt": PROMPT, "guidance_scale": guidance, "num_frames": 9, "num_inference_steps": 4}
    expected = expect(load_pipeline(folder_of(layout)), image, CARD.resolve(asked, instance.recipe), SEED)
    result = run(instance, image, asked)
    assert_equal(result, expected)
    assert result.outputs["video"].value.shape == (9, 32, 32, 3)
    assert result.outputs["video"].meta == {"fps": 8}


@pytest.mark.parametrize("layout", [SECOND, SECOND_UNIPC], ids=lambda layout: layout.name)
def test_each_expert_takes_its_own_guidance(
    layout: Layout,
    folder_of: Callable[[Layout], Path],
    instance_of: Callable[[Layout], Instance],
    image: NDArray[np.uint8],
) -> None:
    instance = instance_of(layout)
    asked = {"prompt": PROMPT, "guidance_scale": 4.0, "guidance_scale_2": 1.5}
    expected = expect(load_pipeline(folder_of(layout)), image, CARD.resolve(asked, instance.recipe), SEED)
    both = run(instance, image, asked)
    assert_equal(both, expected)
    alone = run(instance, image, asked | {"guidance_scale_2": None})
    assert not np.array_equal(latents(both), latents(alone))


@pytest.mark.parametrize("layout", [PLAIN, EXPAND], ids=lambda layout: layout.name)
def test_other_sizes_lengths_and_steps(
    layout: Layout,
    folder_of: Callable[[Layout], Path],
    instance_of: Callable[[Layout], Instance],
    image: NDArray[np.uint8],
) -> None:
    instance = instance_of(layout)
    pipeline = load_pipeline(folder_of(layout))
    for change in (
        {"height": 32, "width": 64, "num_frames": 1, "num_inference_steps": 1},
        {"height": 64, "width": 32, "num_frames": 13, "num_inference_steps": 6, "max_sequence_length": 4},
    ):
        asked = {"prompt": PROMPT, "negative_prompt": "", **change}
        expected = expect(pipeline, image, CARD.resolve(asked, instance.recipe), SEED)
        assert_equal(run(instance, image, asked), expected)


def test_an_untouched_pipeline_agrees_to_rounding(
    folder_of: Callable[[Layout], Path],
    instance_of: Callable[[Layout], Instance],
    image: NDArray[np.uint8],
) -> None:
    """As a user would load it, with weights in the file's map: the same within float32 rounding."""
    instance = instance_of(PLAIN)
    asked = {"prompt": PROMPT}
    pipeline = load_pipeline(folder_of(PLAIN), aligned=False)
    expected = expect(pipeline, image, CARD.resolve(asked, instance.recipe), SEED)
    np.testing.assert_allclose(latents(run(instance, image, asked)), expected.latents, rtol=0, atol=1e-5)


@pytest.mark.parametrize("guidance", [1.0, 3.0], ids=["unguided", "guided"])
def test_starter_weights_equal_the_pipeline(guidance: float, image: NDArray[np.uint8]) -> None:
    folder = starter_folder(CARD.id)
    assert folder is not None, "the package ships starter weights for this card"
    instance = load_instance(CARD, folder)
    asked = {
        "prompt": "a red circle drifting right",
        "guidance_scale": guidance,
        "num_inference_steps": 3,
    }
    expected = expect(load_pipeline(folder), image, CARD.resolve(asked, instance.recipe), SEED)
    assert_equal(run(instance, image, asked), expected)
