"""The engine equals diffusers' `LTX2Pipeline`, and its recipe for two stages, bit for bit: in latents, frames
and waveform."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mutoscope.models.ltx2.card import CARD
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance, load_instance
from mutoscope.platform.engine.request import Request, Result
from tests.models.ltx2.oracle import Expected, Oracle
from tests.support.parts import few_now

PROMPT = " a red circle hums "
SEED = 7

ONE = {"two_stages": False}
PLAIN = {"guidance_scale": 1.0, "audio_guidance_scale": 1.0}


def run(instance: Instance, asked: dict[str, Any], seed: int = SEED) -> Result:
    return Engine().run(instance, Request("r", CARD.id, {}, {"prompt": PROMPT, **asked}, seed))


def expect(oracle: Oracle, instance: Instance, asked: dict[str, Any], seed: int = SEED) -> Expected:
    parameters = CARD.resolve({"prompt": PROMPT, **asked}, instance.recipe)
    return oracle.expect(parameters, instance.recipe, seed)


def assert_equal(result: Result, expected: Expected) -> None:
    outputs = result.outputs
    np.testing.assert_array_equal(outputs["latent"].value["latents"], expected.latents, strict=True)
    np.testing.assert_array_equal(
        outputs["audio_latent"].value["latents"], expected.audio_latents, strict=True
    )
    np.testing.assert_array_equal(outputs["video"].value.frames_THWC, expected.frames, strict=True)
    np.testing.assert_array_equal(outputs["audio"].value, expected.audio, strict=True)


ASKED: dict[str, dict[str, Any]] = {
    "unguided": ONE | PLAIN,
    "guided": ONE,
    "only-video-guided": ONE | {"audio_guidance_scale": 1.0},
    "only-audio-guided": ONE | {"guidance_scale": 1.0},
    "rescaled": ONE | {"guidance_rescale": 0.7, "audio_guidance_rescale": 0.5},
    "spatio-temporal": ONE | {"stg_scale": 1.0, "audio_stg_scale": 0.5},
    "modality": ONE | {"modality_scale": 3.0, "audio_modality_scale": 2.0},
    "no-text-guidance": ONE | PLAIN | {"modality_scale": 3.0, "stg_scale": 1.0, "audio_stg_scale": 0.5},
    "two-stages-unguided": PLAIN,
    "two-stages-guided": {},
    "both-stages-guided": {"stage_2_guidance_scale": 2.0, "stage_2_audio_guidance_scale": 1.5},
    "other-size": {"height": 192, "num_frames": 17, "num_inference_steps": 5, "fps": 12.5},
}
NOW = {
    ("2.0", "unguided"), ("2.0", "other-size"), ("2.0", "two-stages-guided"),
    ("2.3", "rescaled"), ("2.3", "spatio-temporal"), ("2.3", "modality"), ("2.3", "both-stages-guided"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("layout", "name"), few_now(product(["2.0", "2.3"], ASKED), lambda *case: case in NOW)
)
def test_engine_equals_the_pipelines(
    layout: str,
    name: str,
    instance_of: Callable[[str], Instance],
    oracle_of: Callable[[str], Oracle],
) -> None:
    instance, asked = instance_of(layout), ASKED[name]
    result = run(instance, asked)
    assert_equal(result, expect(oracle_of(layout), instance, asked))
    parameters = CARD.resolve({"prompt": PROMPT, **asked}, instance.recipe)
    size = (parameters["num_frames"], parameters["height"], parameters["width"], 3)
    assert result.outputs["video"].value.frames_THWC.shape == size
    assert result.outputs["video"].meta == {"fps": parameters["fps"]}


def test_a_distilled_model_has_its_own_noise_levels(
    folder_of: Callable[[str], Path],
    instance_of: Callable[[str], Instance],
    oracle_of: Callable[[str], Oracle],
) -> None:
    recipe = instance_of("2.0").recipe.model_copy(update={"sigmas": (1.0, 0.99375, 0.725, 0.421875)})
    instance = load_instance(CARD, folder_of("2.0"), recipe=recipe)
    asked = PLAIN | {"num_inference_steps": 4}
    result = run(instance, asked)
    assert_equal(result, expect(oracle_of("2.0"), instance, asked))
    scheduled = run(instance_of("2.0"), asked)
    assert not np.array_equal(
        result.outputs["latent"].value["latents"], scheduled.outputs["latent"].value["latents"]
    )


@pytest.mark.parametrize("tile", [128, 256])
def test_tiles_equal_the_pipelines(
    tile: int, instance_of: Callable[[str], Instance], oracle_of: Callable[[str], Oracle]
) -> None:
    """The frames of `enable_tiling` with tiles that share a quarter of their side; one tile is the whole."""
    instance, oracle = instance_of("2.0"), oracle_of("2.0")
    asked = ONE | {"height": 192, "width": 256, "vae_tile": tile}
    vae, side = oracle.pipeline.vae, {"height": tile, "width": tile}
    stride = {name: value - value // 4 for name, value in side.items()}
    vae.enable_tiling(
        **{f"tile_sample_min_{name}": value for name, value in side.items()},
        **{f"tile_sample_stride_{name}": value for name, value in stride.items()},
    )
    try:
        expected = expect(oracle, instance, asked)
    finally:
        vae.disable_tiling()
    result = run(instance, asked)
    assert_equal(result, expected)
    whole = run(instance, asked | {"vae_tile": 0}).outputs["video"].value.frames_THWC
    assert np.array_equal(whole, expected.frames) == (tile == 256)


def test_every_kind_of_guidance_changes_both_modalities(instance_of: Callable[[str], Instance]) -> None:
    """Or the comparisons above would compare nothing."""
    instance = instance_of("2.3")
    kinds: list[dict[str, Any]] = [
        {},
        PLAIN,
        {"guidance_rescale": 0.7, "audio_guidance_rescale": 0.5},
        {"stg_scale": 1.0, "audio_stg_scale": 0.5},
        {"modality_scale": 3.0, "audio_modality_scale": 2.0},
        {"prompt": "a blue square"},
        {"negative_prompt": "a blue square"},
    ]
    results = [run(instance, ONE | kind) for kind in kinds]
    for slot in ("latent", "audio_latent"):
        assert len({result.outputs[slot].value["latents"].tobytes() for result in results}) == len(kinds)


def test_stages_have_noise_of_their_own(
    instance_of: Callable[[str], Instance], oracle_of: Callable[[str], Oracle]
) -> None:
    """Seeds that agree in their low 32 bits are one to a generator, but not to the second stage."""
    instance = instance_of("2.0")
    assert_equal(run(instance, PLAIN, 2**32 + SEED), expect(oracle_of("2.0"), instance, PLAIN, 2**32 + SEED))
    one, other = (run(instance, PLAIN, seed).outputs for seed in (SEED, 2**32 + SEED))
    assert not np.array_equal(one["latent"].value["latents"], other["latent"].value["latents"])
    one, other = (run(instance, ONE | PLAIN, seed).outputs for seed in (SEED, 2**32 + SEED))
    np.testing.assert_array_equal(one["latent"].value["latents"], other["latent"].value["latents"])


@pytest.mark.parametrize("asked", [{}, PLAIN], ids=["guided", "unguided"])
def test_half_precision_is_rounded_where_the_pipelines_round(
    asked: dict[str, Any], folder_of: Callable[[str], Path]
) -> None:
    """Within a few units of bfloat16: its kernels go other ways for other strides and batches, which float32
    on the CPU does not show."""
    folder = folder_of("2.0")
    instance = load_instance(CARD, folder, dtype="bfloat16")
    outputs = run(instance, asked).outputs
    expected = expect(Oracle.load(folder, torch.bfloat16), instance, asked)
    np.testing.assert_allclose(outputs["latent"].value["latents"], expected.latents, rtol=0, atol=0.05)
    np.testing.assert_allclose(
        outputs["audio_latent"].value["latents"], expected.audio_latents, rtol=0, atol=0.05
    )
    assert outputs["audio"].value.dtype == np.float32
