"""Loading: from a folder, from components in different places, and never with weights that are not there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import FluxTransformer2DModel
from safetensors.torch import load_file, save_file

from mutoscope.models.flux.card import CARD
from mutoscope.platform.engine.instance import Instance, load_instance
from mutoscope.platform.errors import InvalidFolder
from tests.models.flux.oracle import by_engine

WEIGHTS = "transformer/diffusion_pytorch_model.safetensors"
PARAMETERS = {"prompt": "a red circle", "num_inference_steps": 2}


@pytest.fixture
def expected(instance: Callable[[str], Instance]) -> np.ndarray:
    return by_engine(instance("plain"), PARAMETERS, 3)[0]


def scattered(folder: Path, target: Path) -> dict[str, Path]:
    """Every component of a folder in a place of its own, under another name."""
    return {
        spec.name: Path(shutil.copytree(folder / spec.name, target / f"{at}" / "files"))
        for at, spec in enumerate(CARD.components)
    }


def test_components_in_different_places(
    tiny: Callable[[str], Path], tmp_path: Path, expected: np.ndarray
) -> None:
    paths = scattered(tiny("plain"), tmp_path)
    recipe = CARD.inspect(tiny("plain")).recipe
    (tmp_path / "recipe").write_text(recipe.model_dump_json())
    instances = [
        load_instance(CARD, {**paths, "recipe": tmp_path / "recipe"}),
        load_instance(CARD, paths, recipe=recipe),
        load_instance(CARD, paths, recipe=recipe.model_dump(mode="json"), weights={"vae": "ab" * 32}),
    ]
    for instance in instances:
        assert instance.recipe == recipe
        np.testing.assert_array_equal(by_engine(instance, PARAMETERS, 3)[0], expected)
    assert instances[2].weights == {"vae": "ab" * 32}


def test_a_component_or_a_recipe_without_a_path(tiny: Callable[[str], Path], tmp_path: Path) -> None:
    folder = tiny("plain")
    paths = {spec.name: folder / spec.name for spec in CARD.components}
    with pytest.raises(InvalidFolder, match="flux-t2i comes without a recipe"):
        load_instance(CARD, paths)
    with pytest.raises(InvalidFolder, match="recipe of flux-t2i: height=None is not valid"):
        load_instance(CARD, paths, recipe={})
    (tmp_path / "recipe.json").write_text("{")
    with pytest.raises(InvalidFolder, match="is not a readable recipe"):
        load_instance(CARD, {**paths, "recipe": tmp_path})
    with pytest.raises(InvalidFolder, match="component vae has no folder"):
        load_instance(
            CARD, {k: v for k, v in paths.items() if k != "vae"}, recipe=CARD.inspect(folder).recipe
        )


def test_sharded_weights_give_the_same_bits(copy: Path, expected: np.ndarray) -> None:
    model = FluxTransformer2DModel.from_pretrained(copy / "transformer")
    (copy / WEIGHTS).unlink()
    model.save_pretrained(copy / "transformer", max_shard_size="60KB")
    np.testing.assert_array_equal(by_engine(load_instance(CARD, copy), PARAMETERS, 3)[0], expected)


@pytest.mark.parametrize("padding", [1, 4, 20])
def test_where_a_file_puts_its_tensors_does_not_matter(
    copy: Path, expected: np.ndarray, padding: int
) -> None:
    """Equal weights in a file with another header length lie at other addresses when mapped."""
    for path in copy.rglob("*.safetensors"):
        save_file(load_file(path), path, metadata={"format": "pt", "padding": "x" * padding})
    np.testing.assert_array_equal(by_engine(load_instance(CARD, copy), PARAMETERS, 3)[0], expected)


def test_modules_are_frozen_and_own_their_weights(tiny: Callable[[str], Path]) -> None:
    from mutoscope.models.flux.components import load

    paths = {spec.name: tiny("plain") / spec.name for spec in CARD.components}
    loaded = load(paths, device=torch.device("cpu"), dtype=torch.float32)
    modules = [module for module in loaded.values() if isinstance(module, torch.nn.Module)]
    assert len(modules) == 4
    for module in modules:
        assert not module.training
        assert not any(parameter.requires_grad for parameter in module.parameters())
        assert {parameter.data_ptr() % 64 for parameter in module.parameters()} == {0}


@pytest.mark.parametrize("component", ["transformer", "text_encoder_2"])
def test_a_missing_tensor_is_an_error_and_not_a_random_one(copy: Path, component: str) -> None:
    path = next((copy / component).glob("*.safetensors"))
    tensors = load_file(path)
    lost = sorted(tensors)[3]
    del tensors[lost]
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(
        InvalidFolder, match=f"{component} lacks weights for .*, first {lost}: take the component"
    ):
        load_instance(CARD, copy)


def test_a_tensor_of_another_shape(copy: Path) -> None:
    config = json.loads((copy / "transformer" / "config.json").read_text())
    config["num_attention_heads"] = 3
    (copy / "transformer" / "config.json").write_text(json.dumps(config))
    with pytest.raises(InvalidFolder, match="transformer does not load as FluxTransformer2DModel") as caught:
        load_instance(CARD, copy)
    assert "\n" not in str(caught.value)


def test_a_component_of_another_class(tiny: Callable[[str], Path]) -> None:
    paths = {spec.name: tiny("plain") / spec.name for spec in CARD.components}
    paths["vae"] = paths["transformer"]
    with pytest.raises(InvalidFolder, match="holds a FluxTransformer2DModel: vae must be a AutoencoderKL"):
        load_instance(CARD, paths, recipe=CARD.inspect(tiny("plain")).recipe)


def test_loading_leaves_standard_error_alone(
    tiny: Callable[[str], Path], capfd: pytest.CaptureFixture[str]
) -> None:
    load_instance(CARD, tiny("plain"))
    assert capfd.readouterr() == ("", "")


def test_half_precision(tiny: Callable[[str], Path], expected: np.ndarray) -> None:
    latents, image = by_engine(load_instance(CARD, tiny("plain"), dtype="bfloat16"), PARAMETERS, 3)
    assert latents.dtype == np.float32
    assert 0 < np.abs(latents - expected).max() < 0.2
    assert image.dtype == np.uint8
