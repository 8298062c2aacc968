"""What may depend on the sound. Without one, nothing: no weight of its half, no parameter, no noise.

Asked for both at once, video and sound attend to each other, and guidance of the one reaches the other; only
isolated modalities keep the video what it is without a sound.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import LTX2Pipeline

from mutoscope.models.ltx2.card import CARD
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance, load_instance
from mutoscope.platform.engine.request import Request, Result
from mutoscope.platform.errors import InvalidParameter
from tests.models.ltx2.oracle import Oracle

PROMPT = "a red circle hums"
STAGES = pytest.mark.parametrize("two_stages", [False, True], ids=["one-stage", "two-stages"])

SOUNDS = ("audio", "a2v", "v2a", "vocoder")
"""What the names of weights have in them that only the sound, or the way to it, uses."""


def run(instance: Instance, asked: dict[str, Any], seed: int = 3) -> Result:
    return Engine().run(instance, Request("r", CARD.id, {}, {"prompt": PROMPT, **asked}, seed))


def frames(result: Result) -> bytes:
    value = result.outputs["video"].value
    pixels: np.ndarray[Any, Any] = value if isinstance(value, np.ndarray) else value.frames_THWC
    return pixels.tobytes()


def latents(result: Result, slot: str = "latent") -> bytes:
    value: np.ndarray[Any, Any] = result.outputs[slot].value["latents"]
    return value.tobytes()


@pytest.fixture(scope="module")
def other_sound(folder_of: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Instance:
    """The same folder, but every weight that only the sound's half uses is another."""
    folder = tmp_path_factory.mktemp("other") / "folder"
    pipeline = LTX2Pipeline.from_pretrained(folder_of("2.0"))
    generator = torch.Generator().manual_seed(1)
    changed = 0
    for part in ("transformer", "connectors", "audio_vae", "vocoder"):
        for name, tensor in getattr(pipeline, part).state_dict().items():
            if any(word in f"{part}.{name}" for word in SOUNDS):
                tensor.copy_(torch.randn(tensor.shape, generator=generator))
                changed += 1
    assert changed > 100
    pipeline.save_pretrained(folder)
    for name in ("latent_upsampler", "recipe.json"):
        (folder / name).symlink_to(folder_of("2.0") / name)
    return load_instance(CARD, folder)


@STAGES
def test_a_video_without_sound_depends_on_no_weight_of_the_sound(
    two_stages: bool, instance_of: Callable[[str], Instance], other_sound: Instance
) -> None:
    silent = {"audio": False, "two_stages": two_stages}
    ours, others = run(instance_of("2.0"), silent), run(other_sound, silent)
    assert latents(ours) == latents(others)
    assert frames(ours) == frames(others)
    # The same weights do reach the video when it has sound.
    sounding = {"audio": True, "two_stages": two_stages}
    assert latents(run(instance_of("2.0"), sounding)) != latents(run(other_sound, sounding))


@STAGES
@pytest.mark.parametrize("layout", ["2.0", "2.3"])
def test_a_video_without_sound_is_the_pipelines_with_isolated_modalities(
    two_stages: bool,
    layout: str,
    instance_of: Callable[[str], Instance],
    oracle_of: Callable[[str], Oracle],
) -> None:
    """`LTX2Pipeline` has no way to leave the sound out; told to isolate it, it makes the same video."""
    instance = instance_of(layout)
    asked = {"audio": False, "two_stages": two_stages}
    parameters = CARD.resolve({"prompt": PROMPT, **asked}, instance.recipe)
    expected = oracle_of(layout).isolated(parameters, instance.recipe, seed=3)
    result = run(instance, asked)
    assert set(result.outputs) == {"video", "latent"}
    np.testing.assert_array_equal(result.outputs["latent"].value["latents"], expected.latents, strict=True)
    np.testing.assert_array_equal(result.outputs["video"].value, expected.frames, strict=True)


@STAGES
def test_isolated_modalities_leave_the_video_as_it_is_without_sound(
    two_stages: bool, instance_of: Callable[[str], Instance]
) -> None:
    instance = instance_of("2.3")
    silent = run(instance, {"audio": False, "two_stages": two_stages})
    isolated = {"isolate_modalities": True, "two_stages": two_stages}
    loud = [run(instance, isolated | {"audio_guidance_scale": scale}) for scale in (1.0, 5.0)]
    assert {latents(result) for result in loud} == {latents(silent)}
    assert {frames(result) for result in loud} == {frames(silent)}
    assert latents(loud[0], "audio_latent") != latents(loud[1], "audio_latent")


def test_together_the_guidance_of_the_sound_reaches_the_video(
    instance_of: Callable[[str], Instance],
) -> None:
    """The control: attention goes both ways."""
    instance = instance_of("2.3")
    videos = {latents(run(instance, {"audio_guidance_scale": scale})) for scale in (1.0, 5.0)}
    assert len(videos) == 2
    assert latents(run(instance, {"audio": False})) not in videos


def test_the_seed_reaches_the_video_without_sound(instance_of: Callable[[str], Instance]) -> None:
    one, other = (run(instance_of("2.0"), {"audio": False}, seed) for seed in (3, 4))
    assert latents(one) != latents(other)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("audio_guidance_scale", 2.0),
        ("audio_modality_scale", 2.0),
        ("audio_guidance_rescale", 0.5),
        ("audio_stg_scale", 1.0),
        ("stage_2_audio_guidance_scale", 2.0),
        ("modality_scale", 2.0),
        ("isolate_modalities", True),
    ],
)
def test_without_sound_nothing_of_it_may_be_set(
    name: str, value: Any, instance_of: Callable[[str], Instance]
) -> None:
    """So that requests that come to the same have the same memo key."""
    recipe = instance_of("2.0").recipe
    silent = {"prompt": PROMPT, "audio": False}
    with pytest.raises(InvalidParameter, match=f"{name}={value} .*leave it out: audio is false"):
        CARD.resolve(silent | {name: value}, recipe)
    resolved = CARD.resolve(silent, recipe)
    assert CARD.resolve(resolved, recipe) == resolved
