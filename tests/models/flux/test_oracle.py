"""Engine output equals FluxPipeline's: equal bits where weights lie alike in memory, else within 1e-5."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from diffusers import FluxPipeline

from mutoscope.models.flux.card import CARD
from mutoscope.models.starter.folders import starter_folder
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance, load_instance
from mutoscope.platform.engine.request import Request
from tests.models.flux.oracle import by_engine, by_pipeline, load_pipeline
from tests.support.interleaving import content, serve_together
from tests.support.parts import few_now

pipeline_of = lru_cache(maxsize=8)(load_pipeline)

PROMPT = "a red circle left of a blue square"
SETTINGS = [
    # steps, guidance, embedded guidance, seed, negative prompt, (height, width)
    (1, 1.0, 3.5, 0, "", (16, 24)),
    (1, 3.0, 3.5, 0, "", (16, 24)),
    (4, 1.0, 1.5, 7, "", (16, 16)),
    (4, 3.5, 3.5, 7, "a green cross above a circle", (16, 24)),
    (7, 0.0, 0.0, 2**63 - 1, "", (24, 8)),
    (7, 1.5, 7.0, 11, "a cross", (32, 32)),
]


def resolved(instance: Instance, setting: tuple[Any, ...]) -> dict[str, Any]:
    steps, guidance, embedded, _, negative, (height, width) = setting
    given = {
        "prompt": PROMPT,
        "negative_prompt": negative,
        "height": height,
        "width": width,
        "num_inference_steps": steps,
        "guidance_scale": guidance,
        "embedded_guidance": embedded,
    }
    return CARD.resolve(given, instance.recipe)


@pytest.mark.parametrize(
    ("name", "number"),
    few_now(
        product(["plain", "shift 3", "dev"], range(len(SETTINGS))),
        lambda name, number: number == 3 or (name, number) in {("plain", 0), ("dev", 5), ("shift 3", 4)},
    ),
)
def test_equal_bits(
    tiny: Callable[[str], Path], instance: Callable[[str], Instance], name: str, number: int
) -> None:
    setting = SETTINGS[number]
    parameters = resolved(instance(name), setting)
    latents, image = by_engine(instance(name), parameters, setting[3])
    expected_latents, expected_image = by_pipeline(
        pipeline_of(tiny(name), aligned=True), parameters, setting[3]
    )
    np.testing.assert_array_equal(latents, expected_latents)
    np.testing.assert_array_equal(image, expected_image)


@pytest.mark.parametrize("name", ["plain", "shift 3", "dev"])
def test_close_to_the_pipeline_as_it_loads_itself(
    tiny: Callable[[str], Path], instance: Callable[[str], Instance], name: str
) -> None:
    parameters = resolved(instance(name), SETTINGS[3])
    latents, _ = by_engine(instance(name), parameters, 7)
    expected, _ = by_pipeline(pipeline_of(tiny(name), aligned=False), parameters, 7)
    np.testing.assert_allclose(latents, expected, rtol=0, atol=1e-5)


def test_control_every_parameter_reaches_the_latents(instance: Callable[[str], Instance]) -> None:
    """The comparisons above would prove little if the outputs did not depend on what is varied."""
    base = resolved(instance("dev"), SETTINGS[3])
    reference, _ = by_engine(instance("dev"), base, 7)
    changes = {
        "prompt": "a blue circle",
        "negative_prompt": "",
        "num_inference_steps": 5,
        "guidance_scale": 3.0,
        "embedded_guidance": 3.0,
    }
    for name, value in changes.items():
        assert not np.array_equal(by_engine(instance("dev"), {**base, name: value}, 7)[0], reference), name
    assert not np.array_equal(by_engine(instance("dev"), base, 8)[0], reference)
    for other in ("plain", "shift 3"):
        assert not np.array_equal(by_engine(instance(other), base, 7)[0], reference)


@pytest.mark.parametrize("guidance", [1.0, 3.0])
@pytest.mark.parametrize("seed", few_now([3, 4], lambda seed: seed == 3))
def test_starter_weights(starter: tuple[Instance, FluxPipeline], guidance: float, seed: int) -> None:
    instance, pipeline = starter
    given = {"prompt": PROMPT, "num_inference_steps": 4, "guidance_scale": guidance}
    parameters = CARD.resolve(given, instance.recipe)
    latents, image = by_engine(instance, parameters, seed)
    expected_latents, expected_image = by_pipeline(pipeline, parameters, seed)
    np.testing.assert_array_equal(latents, expected_latents)
    np.testing.assert_array_equal(image, expected_image)


def test_starter_weights_interleaved(starter: tuple[Instance, FluxPipeline]) -> None:
    instance, _ = starter
    given = {"prompt": PROMPT, "num_inference_steps": 3}
    requests = [Request(name, CARD.id, {}, given, seed) for name, seed in (("a", 5), ("b", 5), ("c", 6))]
    together = serve_together(instance, requests)
    assert together == {request.id: content(Engine().run(instance, request)) for request in requests}
    assert together["a"] == together["b"] != together["c"]


@pytest.fixture(scope="module")
def starter() -> tuple[Instance, FluxPipeline]:
    folder = starter_folder(CARD.id)
    assert folder is not None, "the package ships starter weights for flux-t2i"
    return load_instance(CARD, folder), load_pipeline(folder, aligned=True)
