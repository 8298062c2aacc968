"""Engine output equals diffusers' `Cosmos3OmniPipeline`, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mutoscope.models.cosmos3.card import CARD
from mutoscope.models.cosmos3.prompt import prompt_tokens
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.request import Request, Result
from tests.models.cosmos3.conftest import FOLDERS
from tests.models.cosmos3.oracle import Expected, expect, load_pipeline
from tests.support.parts import few_now

PROMPT = "a red circle left of a blue square."
SEED = 7


def run(instance: Instance, parameters: dict[str, Any]) -> Result:
    return Engine().run(instance, Request("r", CARD.id, {}, {"prompt": PROMPT, **parameters}, SEED))


def expected(folder: Path, instance: Instance, parameters: dict[str, Any], text: str = PROMPT) -> Expected:
    resolved = CARD.resolve({"prompt": PROMPT, **parameters}, instance.recipe)
    return expect(load_pipeline(folder), text, resolved, SEED)


def assert_equal(result: Result, wanted: Expected) -> None:
    outputs = result.outputs
    np.testing.assert_array_equal(outputs["latent"].value["latents"], wanted.latents, strict=True)
    frames = outputs["video"].value if "video" in outputs else outputs["image"].value[None]
    np.testing.assert_array_equal(frames, wanted.frames, strict=True)


@pytest.mark.parametrize(
    ("name", "guidance"),
    few_now(product(FOLDERS, [1.0, 3.0]), lambda name, guidance: guidance > 1 or name == "qwen3"),
)
def test_folders_equal_the_pipeline(
    name: str,
    guidance: float,
    folder_of: Callable[[str], Path],
    instance_of: Callable[[str], Instance],
) -> None:
    asked = {"reasoning_tokens": 0, "guidance_scale": guidance, "num_inference_steps": 4}
    result = run(instance_of(name), asked)
    assert_equal(result, expected(folder_of(name), instance_of(name), asked))
    assert result.outputs["text"].value == PROMPT
    assert result.outputs["video"].value.shape == (5, 32, 32, 3)


@pytest.mark.parametrize(
    "change",
    [
        {"num_frames": 1},
        {"num_frames": 9, "fps": 30, "num_inference_steps": 1},
        {"height": 24, "width": 40, "negative_prompt": ""},
        {"height": 64, "width": 8, "num_inference_steps": 7},
    ],
    ids=lambda change: ", ".join(f"{name} {value}" for name, value in change.items()),
)
@pytest.mark.parametrize("name", few_now(["qwen3", "nemotron"], lambda name: name == "qwen3"))
def test_other_sizes_rates_and_lengths(
    name: str,
    change: dict[str, Any],
    folder_of: Callable[[str], Path],
    instance_of: Callable[[str], Instance],
) -> None:
    """A single frame is a picture; 3 or 5 latents a side leave a patch half empty."""
    asked = {"reasoning_tokens": 0, **change}
    result = run(instance_of(name), asked)
    assert_equal(result, expected(folder_of(name), instance_of(name), asked))


@pytest.mark.parametrize("name", ["qwen3", "nemotron"])
def test_what_is_drawn_is_what_was_written(
    name: str, folder_of: Callable[[str], Path], instance_of: Callable[[str], Instance]
) -> None:
    """With reasoning, the sample is the pipeline's for the text that the reasoning came to."""
    asked = {"reasoning_tokens": 6, "temperature": 1.0}
    result = run(instance_of(name), asked)
    text = result.outputs["text"].value
    assert text != PROMPT
    assert_equal(result, expected(folder_of(name), instance_of(name), asked, text))


@pytest.mark.parametrize("shape", [(40, 52), (20, 90), (32, 32)], ids=str)
@pytest.mark.parametrize("name", few_now(["qwen3", "nemotron"], lambda name: name == "qwen3"))
def test_a_given_first_frame(
    name: str,
    shape: tuple[int, int],
    folder_of: Callable[[str], Path],
    instance_of: Callable[[str], Instance],
) -> None:
    """Noise of another size and shape than the video, so that scaling and cropping are on the path."""
    image = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    parameters = {"prompt": PROMPT, "reasoning_tokens": 0, "num_frames": 9, "num_inference_steps": 4}
    resolved = CARD.resolve(parameters, instance_of(name).recipe)
    result = Engine().run(instance_of(name), Request("r", CARD.id, {"image": image}, parameters, SEED))
    assert_equal(result, expect(load_pipeline(folder_of(name)), PROMPT, resolved, SEED, image))


def test_an_untouched_pipeline_agrees_to_rounding(
    folder_of: Callable[[str], Path], instance_of: Callable[[str], Instance]
) -> None:
    """As a user would load it, with weights in the file's map: the same within float32 rounding."""
    resolved = CARD.resolve({"prompt": PROMPT, "reasoning_tokens": 0}, instance_of("qwen3").recipe)
    wanted = expect(load_pipeline(folder_of("qwen3"), aligned=False), PROMPT, resolved, SEED)
    made = run(instance_of("qwen3"), {"reasoning_tokens": 0}).outputs["latent"].value["latents"]
    np.testing.assert_allclose(made, wanted.latents, rtol=0, atol=1e-5)


@pytest.mark.parametrize("text", ["", "a red circle", "a dot. ", "..."])
@pytest.mark.parametrize("frames", [1, 5])
@pytest.mark.parametrize("name", few_now(["qwen3", "bare"], lambda name: name == "qwen3"))
def test_prompts_are_framed_as_the_pipeline_frames_them(
    name: str,
    frames: int,
    text: str,
    folder_of: Callable[[str], Path],
    instance_of: Callable[[str], Instance],
) -> None:
    pipeline, resident = load_pipeline(folder_of(name)), instance_of(name)
    sizes = {"num_frames": frames, "height": 32, "width": 48, "fps": 8}
    wanted = pipeline.tokenize_prompt(text, text, **sizes)
    system = resident.recipe.system_prompt
    for tokens, negative in zip(wanted, (False, True), strict=True):
        made = prompt_tokens(pipeline.text_tokenizer, text, sizes, negative=negative, system=system)
        assert list(made) == tokens
