"""`wan-adaptive`: its base without reuse, honest about what it saved and how close it stayed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mutoscope.models.common.quality import psnr, ssim
from mutoscope.models.starter.folders import starter_folder
from mutoscope.models.starter.video_evaluate import held_out_trials
from mutoscope.models.wan.adaptive import has_twin
from mutoscope.models.wan.adaptive_card import CARD, LEAST_PSNR, LEAST_SSIM, AdaptiveRecipe
from mutoscope.models.wan.card import CARD as I2V
from mutoscope.models.wan.card import T2V
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance, load_instance
from mutoscope.platform.engine.request import Progress, Request, Result
from mutoscope.platform.errors import InvalidParameter
from tests.models.wan.folders import (
    EXPAND,
    LAYOUTS,
    PLAIN,
    SECOND,
    TEXT,
    TEXT_LAYOUTS,
    TEXT_SECOND_UNIPC,
    VISION_UNIPC,
    Layout,
)
from tests.support.interleaving import content, serve_together

FolderOf = Callable[[Layout], Path]
InstanceOf = Callable[[Layout], Instance]
Image = NDArray[np.uint8]

OFF = {"reuse_threshold": 0.0, "exit_threshold": 0.0}
WILD = {"reuse_threshold": 1e6, "max_reuse": 100, "exit_threshold": 0.0}
"""Two steps are computed, and all others follow from them."""


@pytest.fixture(scope="module")
def adaptive_of(folder_of: FolderOf) -> InstanceOf:
    loaded: dict[Layout, Instance] = {}

    def of(layout: Layout) -> Instance:
        if layout not in loaded:
            loaded[layout] = load_instance(CARD, folder_of(layout))
        return loaded[layout]

    return of


def request(card: str, image: Image | None, name: str = "r", *, seed: int = 7, **parameters: Any) -> Request:
    asked = {"prompt": "a red circle", "num_inference_steps": 8, **parameters}
    return Request(name, card, {} if image is None else {"image": image}, asked, seed)


def given(layout: Layout, image: Image) -> Image | None:
    return None if layout.text else image


def run(instance: Instance, image: Image | None, **parameters: Any) -> Result:
    return Engine().run(instance, request(CARD.id, image, **parameters))


def report(result: Result) -> dict[str, Any]:
    value: dict[str, Any] = result.outputs["report"].value
    return value


@pytest.mark.parametrize("guidance", [1.0, 3.0], ids=["unguided", "guided"])
@pytest.mark.parametrize("layout", [*LAYOUTS, *TEXT_LAYOUTS], ids=lambda layout: layout.name)
def test_without_reuse_it_is_the_base_card_bit_for_bit(
    layout: Layout, guidance: float, adaptive_of: InstanceOf, instance_of: InstanceOf, image: Image
) -> None:
    base = T2V.id if layout.text else I2V.id
    asked = {"guidance_scale": guidance, "num_inference_steps": 4}
    expected = Engine().run(instance_of(layout), request(base, given(layout, image), **asked))
    made = run(adaptive_of(layout), given(layout, image), **asked, **OFF, twin_rate=1.0)
    for slot in ("video", "latent"):
        assert made.outputs[slot].meta == expected.outputs[slot].meta
    assert {**content(expected)} == {k: v for k, v in content(made).items() if not k.startswith("report")}
    assert report(made)["saved_steps"] == 0
    assert report(made)["twin"] == {"psnr_db": None, "ssim": pytest.approx(1)}


@pytest.mark.parametrize("layout", [PLAIN, SECOND, EXPAND, TEXT_SECOND_UNIPC], ids=lambda lay: lay.name)
def test_steps_are_saved_and_said(layout: Layout, adaptive_of: InstanceOf, image: Image) -> None:
    """Progress shows one denoising step for each that the model ran for."""
    seen: list[Progress] = []
    asked = request(CARD.id, given(layout, image), twin_rate=0.0, **WILD)
    made = Engine().run(adaptive_of(layout), asked, seen.append)
    told = report(made)
    computed = sum(at.stage == "denoise" for at in seen)
    assert 2 <= computed < 8
    assert (told["steps"], told["computed_steps"], told["saved_steps"]) == (8, computed, 8 - computed)
    assert told["rules"] == {"reuse_threshold": 1e6, "max_reuse": 100, "exit_threshold": 0.0}
    assert told["twin"] is None
    full = run(adaptive_of(layout), given(layout, image), twin_rate=0.0, **OFF)
    assert content(full)["latent.latents"] != content(made)["latent.latents"]


def test_the_twin_is_the_base_and_its_figures_are_true(
    adaptive_of: InstanceOf, instance_of: InstanceOf, image: Image
) -> None:
    asked = {"reuse_threshold": 0.3, "max_reuse": 1, "num_inference_steps": 16}
    made = run(adaptive_of(PLAIN), image, twin_rate=1.0, **asked)
    full = Engine().run(instance_of(PLAIN), request(I2V.id, image, num_inference_steps=16))
    base = full.outputs["video"].value
    told, frames = report(made), made.outputs["video"].value
    assert told["saved_steps"] > 0
    assert told["twin"] == {"psnr_db": psnr(frames, base), "ssim": ssim(frames, base)}
    alone = run(adaptive_of(PLAIN), image, twin_rate=0.0, **asked)
    assert content(alone)["video"] == content(made)["video"]  # a twin changes nothing of the video


def test_a_setting_that_strays_too_far_fails_with_its_figures(image: Image) -> None:
    """The starter weights under strong guidance, with two of twelve steps computed."""
    folder = starter_folder(I2V.id)
    assert folder is not None
    instance = load_instance(CARD, folder)
    asked = {"guidance_scale": 5.0, "num_inference_steps": 12}
    with pytest.raises(InvalidParameter) as refused:
        run(instance, image, twin_rate=1.0, **asked, **WILD)
    line = str(refused.value)
    assert line.startswith("reuse_threshold=1000000.0 is not valid: without 10 of 12 steps the video is ")
    assert f"at least {LEAST_PSNR:g} dB and {LEAST_SSIM} are needed: lower it" in line
    assert run(instance, image, twin_rate=0.0, **asked, **WILD).outputs["video"].value.shape[0] == 17
    told = report(run(instance, image, twin_rate=1.0, **asked))  # the folder's defaults pass
    assert told["twin"]["psnr_db"] is None or told["twin"]["psnr_db"] > LEAST_PSNR


def test_the_defaults_save_steps_on_the_starter_weights() -> None:
    folder = starter_folder(I2V.id)
    assert folder is not None
    instance = load_instance(CARD, folder)
    for trial in held_out_trials(2):
        asked = {"prompt": trial.caption, "num_inference_steps": 12, "twin_rate": 1.0}
        told = report(run(instance, trial.truth[0], seed=trial.seed, **asked))
        assert told["saved_steps"] >= 6
        assert told["twin"]["psnr_db"] > 40
        assert told["twin"]["ssim"] > 0.99


def test_which_requests_have_a_twin() -> None:
    """A share of them, decided by seed and prompt."""

    def share(rate: float, **parameters: Any) -> float:
        asked = [request(CARD.id, None, seed=seed, twin_rate=rate, **parameters) for seed in range(2000)]
        return sum(map(has_twin, asked)) / len(asked)

    assert (share(0.0), share(1.0)) == (0.0, 1.0)
    assert share(0.25) == pytest.approx(0.25, abs=0.04)
    chosen = [
        [has_twin(request(CARD.id, None, seed=seed, twin_rate=0.5, prompt=prompt)) for seed in range(50)]
        for prompt in ("a", "a", "b")
    ]
    assert chosen[0] == chosen[1] != chosen[2]


@pytest.mark.parametrize("layout", [VISION_UNIPC, SECOND], ids=lambda layout: layout.name)
def test_interleaved_equals_serial(layout: Layout, adaptive_of: InstanceOf, image: Image) -> None:
    """What a request leaves out depends on nobody else: three that save differently, one with a twin."""
    requests = [
        request(CARD.id, image, "some", reuse_threshold=0.5, max_reuse=1, twin_rate=0.0),
        request(CARD.id, image, "all", seed=2, twin_rate=0.0, **WILD),
        request(CARD.id, image, "twin", seed=3, twin_rate=1.0, **OFF),
    ]
    alone = {each.id: content(Engine().run(adaptive_of(layout), each)) for each in requests}
    assert serve_together(adaptive_of(layout), requests, stagger=1) == alone


@pytest.mark.parametrize(
    ("layout", "with_image", "line"),
    [
        (PLAIN, False, "image=None is not valid: these weights begin with it; pass image="),
        (TEXT, True, "image='an image' is not valid: leave it out: these weights read text alone"),
    ],
)
def test_the_folder_says_whether_an_image_is_needed(
    layout: Layout, with_image: bool, line: str, adaptive_of: InstanceOf, image: Image
) -> None:
    with pytest.raises(InvalidParameter, match=line):
        Engine().submit(adaptive_of(layout), request(CARD.id, image if with_image else None))


def test_a_ti2v_folder_takes_an_image_or_none(
    adaptive_of: InstanceOf, instance_of: InstanceOf, folder_of: FolderOf, image: Image
) -> None:
    recipe = adaptive_of(EXPAND).recipe
    assert isinstance(recipe, AdaptiveRecipe)
    assert recipe.image == "optional"
    without = run(adaptive_of(EXPAND), None, **OFF)
    expected = Engine().run(load_instance(T2V, folder_of(EXPAND)), request(T2V.id, None))
    assert content(without)["video"] == content(expected)["video"]
    assert content(run(adaptive_of(EXPAND), image, **OFF))["video"] != content(without)["video"]
