"""`wan-t2v`: equal to diffusers' `WanPipeline` bit for bit, and which folders it takes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from diffusers import WanPipeline

from mutoscope.models.registry import get_card
from mutoscope.models.wan.card import CARD, T2V
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance, load_instance
from mutoscope.platform.engine.request import Request
from mutoscope.platform.errors import InvalidFolder, InvalidParameter
from tests.models.wan.folders import (
    EXPAND,
    PLAIN,
    TEXT,
    TEXT_EXPAND,
    TEXT_LAYOUTS,
    TEXT_SECOND,
    TEXT_SECOND_UNIPC,
    Layout,
)
from tests.models.wan.oracle import Expected, expect, load_pipeline
from tests.support.interleaving import content, serve_together

PROMPT = " a  red circle drifting &amp;amp; right"
SEED = 7

FolderOf = Callable[[Layout], Path]
InstanceOf = Callable[[Layout], Instance]


def request(name: str = "r", *, seed: int = SEED, **parameters: Any) -> Request:
    return Request(name, T2V.id, {}, {"prompt": PROMPT, **parameters}, seed)


def check(instance: Instance, folder: Path, asked: dict[str, Any]) -> None:
    """The engine's latents and frames are the pipeline's."""
    parameters = T2V.resolve({"prompt": PROMPT, **asked}, instance.recipe)
    expected: Expected = expect(load_pipeline(folder, kind=WanPipeline), None, parameters, SEED)
    result = Engine().run(instance, request(**asked))
    np.testing.assert_array_equal(result.outputs["latent"].value["latents"], expected.latents, strict=True)
    np.testing.assert_array_equal(result.outputs["video"].value, expected.frames, strict=True)


@pytest.mark.parametrize("guidance", [1.0, 3.0], ids=["unguided", "guided"])
@pytest.mark.parametrize("layout", TEXT_LAYOUTS, ids=lambda layout: layout.name)
def test_layouts_equal_the_pipeline(
    layout: Layout, guidance: float, folder_of: FolderOf, instance_of: InstanceOf
) -> None:
    asked = {"guidance_scale": guidance, "num_frames": 9, "num_inference_steps": 4}
    check(instance_of(layout), folder_of(layout), asked)


@pytest.mark.parametrize("layout", [TEXT_SECOND, TEXT_SECOND_UNIPC], ids=lambda layout: layout.name)
def test_each_expert_takes_its_own_guidance(
    layout: Layout, folder_of: FolderOf, instance_of: InstanceOf
) -> None:
    check(instance_of(layout), folder_of(layout), {"guidance_scale": 4.0, "guidance_scale_2": 1.5})
    both, shared = (
        content(Engine().run(instance_of(layout), request(guidance_scale=4.0, guidance_scale_2=scale)))
        for scale in (1.5, None)
    )
    assert both["latent.latents"] != shared["latent.latents"]


@pytest.mark.parametrize("layout", [TEXT, TEXT_EXPAND], ids=lambda layout: layout.name)
def test_other_sizes_lengths_and_steps(layout: Layout, folder_of: FolderOf, instance_of: InstanceOf) -> None:
    for change in (
        {"height": 32, "width": 64, "num_frames": 1, "num_inference_steps": 1},
        {"height": 64, "width": 32, "num_frames": 13, "num_inference_steps": 6, "max_sequence_length": 4},
    ):
        check(instance_of(layout), folder_of(layout), {"negative_prompt": "a green circle", **change})


def test_control_every_parameter_reaches_the_latents(instance_of: InstanceOf) -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"prompt": "a blue square"},
        {"negative_prompt": "a green"},
        {"guidance_scale": 2.0},
        {"num_inference_steps": 4},
        {"seed": 8},
    ]
    made = {
        content(Engine().run(instance_of(TEXT), request(**change)))["latent.latents"] for change in changes
    }
    assert len(made) == len(changes)


@pytest.mark.parametrize("layout", [TEXT_SECOND_UNIPC, TEXT_EXPAND], ids=lambda layout: layout.name)
def test_interleaved_equals_serial(layout: Layout, instance_of: InstanceOf) -> None:
    other = {"guidance_scale": 1.0, "num_frames": 9, "num_inference_steps": 5}
    requests = [request("first"), request("other", seed=2, **other), request("twin")]
    alone = {each.id: content(Engine().run(instance_of(layout), each)) for each in requests}
    assert serve_together(instance_of(layout), requests, stagger=1) == alone


def test_it_takes_no_image(instance_of: InstanceOf) -> None:
    image = np.zeros((32, 32, 3), np.uint8)
    with pytest.raises(InvalidParameter, match="wan-t2v takes no inputs"):
        Engine().submit(instance_of(TEXT), Request("r", T2V.id, {"image": image}, {"prompt": PROMPT}, 0))


@pytest.mark.parametrize(
    ("card_id", "layout", "line"),
    [
        ("wan-i2v", TEXT, "holds a text-to-video Wan: use card wan-t2v"),
        ("wan-t2v", PLAIN, "holds an image-to-video Wan: use card wan-i2v"),
    ],
)
def test_each_card_refuses_the_others_folder(
    card_id: str, layout: Layout, line: str, folder_of: FolderOf
) -> None:
    with pytest.raises(InvalidFolder, match=line):
        get_card(card_id).inspect(folder_of(layout))


@pytest.mark.parametrize("layout", [EXPAND, TEXT_EXPAND], ids=lambda layout: layout.name)
def test_a_ti2v_folder_serves_both_cards(layout: Layout, folder_of: FolderOf) -> None:
    """Whichever of the two pipelines it names, text alone gives the same video."""
    for card in (CARD, T2V):
        assert "transformer" in card.inspect(folder_of(layout)).components
    made = content(Engine().run(load_instance(T2V, folder_of(layout)), request()))
    expected = content(Engine().run(load_instance(T2V, folder_of(TEXT_EXPAND)), request()))
    assert made == expected


def test_channels_that_read_an_image_are_refused(folder_of: FolderOf, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(folder_of(PLAIN), tmp_path / "card"))
    index = json.loads((folder / "model_index.json").read_text())
    (folder / "model_index.json").write_text(json.dumps({**index, "_class_name": "WanPipeline"}))
    with pytest.raises(InvalidFolder, match="transformer in_channels is 36 but vae z_dim is 16"):
        T2V.inspect(folder)
