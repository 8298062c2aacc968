"""Damaged FLUX folders: each is told in one line that names the file and the remedy."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from diffusers import FluxTransformer2DModel

from mutoscope.models.flux.card import CARD
from mutoscope.platform.errors import InvalidFolder

WEIGHTS = "transformer/diffusion_pytorch_model.safetensors"
INDEX = "transformer/diffusion_pytorch_model.safetensors.index.json"


def edit(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def truncate(path: Path, by: int) -> None:
    path.write_bytes(path.read_bytes()[:-by])


def grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def header(path: Path, length: int) -> None:
    path.write_bytes(struct.pack("<Q", length) + path.read_bytes()[8:])


def as_bin(path: Path) -> None:
    path.rename(path.with_name("diffusion_pytorch_model.bin"))


DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no folder": (shutil.rmtree, "folder is not a folder: give the path of a diffusers-format folder"),
    "no index": (
        lambda f: (f / "model_index.json").unlink(),
        "folder has no model_index.json: give the folder",
    ),
    "index cut": (lambda f: truncate(f / "model_index.json", 3), "model_index.json is not valid JSON"),
    "index a list": (lambda f: (f / "model_index.json").write_text("[]"), "holds a JSON list, not an object"),
    "other family": (
        lambda f: edit(f / "model_index.json", _class_name="WanPipeline"),
        "folder holds a WanPipeline, not a FluxPipeline: use the card of its family",
    ),
    "unnamed component": (
        lambda f: edit(f / "model_index.json", vae=[None, None]),
        "model_index.json names no vae",
    ),
    "odd entry": (lambda f: edit(f / "model_index.json", vae=[1, 2]), "describes vae as .* expected"),
    "wrong class": (
        lambda f: edit(f / "model_index.json", vae=["diffusers", "AutoencoderKLWan"]),
        "declares vae as AutoencoderKLWan: the card needs AutoencoderKL",
    ),
    "wrong class inside": (
        lambda f: edit(f / "vae" / "config.json", _class_name="AutoencoderKLWan"),
        "vae/config.json is of a AutoencoderKLWan: the card needs AutoencoderKL",
    ),
    "no component": (
        lambda f: shutil.rmtree(f / "text_encoder"),
        "text_encoder is missing: copy the text_encoder",
    ),
    "no config": (lambda f: (f / "vae" / "config.json").unlink(), "vae/config.json is missing"),
    "config no JSON": (
        lambda f: (f / "vae" / "config.json").write_text("{"),
        "vae/config.json is not valid JSON",
    ),
    "binary config": (
        lambda f: (f / "vae" / "config.json").write_bytes(b"\xff\xfe"),
        "config.json is not valid JSON",
    ),
    "no weights": (
        lambda f: (f / WEIGHTS).unlink(),
        "transformer has no weights: add diffusion_pytorch_model",
    ),
    "pickled weights": (lambda f: as_bin(f / WEIGHTS), "but no safetensors: save it again"),
    "weights cut": (
        lambda f: truncate(f / WEIGHTS, 1),
        r"safetensors is damaged: \d+ bytes where its header needs",
    ),
    "weights grown": (lambda f: grow(f / WEIGHTS), r"safetensors is damaged: \d+ bytes"),
    "header cut": (
        lambda f: (f / WEIGHTS).write_bytes((f / WEIGHTS).read_bytes()[:100]),
        r"truncated .* \(100 bytes\)",
    ),
    "empty weights": (
        lambda f: (f / WEIGHTS).write_bytes(b""),
        r"truncated or no safetensors file \(0 bytes\)",
    ),
    "a pointer": (
        lambda f: (f / WEIGHTS).write_text("version https://git-lfs/spec/v1"),
        "no safetensors file",
    ),
    "huge header": (lambda f: header(f / WEIGHTS, 2**63), "truncated or no safetensors file"),
    "header no JSON": (lambda f: header(f / WEIGHTS, 16), "has no readable safetensors header"),
    "no tokenizer": (lambda f: shutil.rmtree(f / "tokenizer_2"), "tokenizer_2 is missing"),
    "tokenizer no JSON": (
        lambda f: truncate(f / "tokenizer" / "tokenizer.json", 9),
        "tokenizer.json is not valid JSON",
    ),
    "empty tokenizer": (
        lambda f: [path.unlink() for path in (f / "tokenizer").iterdir()],
        "tokenizer has no configuration: copy the tokenizer component again",
    ),
    "prompt too long": (
        lambda f: edit(f / "tokenizer" / "tokenizer_config.json", model_max_length=77),
        "model_max_length=77 where text_encoder takes 12: set it to 12",
    ),
    "odd schedule": (
        lambda f: edit(f / "scheduler" / "scheduler_config.json", use_karras_sigmas=True),
        "use_karras_sigmas=True is not supported: set it to false",
    ),
    "mixed latents": (
        lambda f: edit(f / "vae" / "config.json", latent_channels=16),
        "mixes models: transformer in_channels is 16 but vae latent_channels x 4 is 64",
    ),
    "mixed text": (
        lambda f: edit(f / "text_encoder_2" / "config.json", d_model=64),
        "text_encoder_2 d_model is 64",
    ),
    "mixed pooled": (
        lambda f: edit(f / "text_encoder" / "config.json", hidden_size=64),
        "text_encoder hidden_size is 64",
    ),
    "recipe no JSON": (lambda f: (f / "recipe.json").write_text("{]"), "recipe.json is not valid JSON"),
    "recipe typo": (lambda f: edit(f / "recipe.json", hieght=16), "recipe.json: hieght=16 is not valid"),
    "recipe range": (
        lambda f: edit(f / "recipe.json", num_inference_steps=0),
        "num_inference_steps=0 is not valid",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found(copy: Path, name: str) -> None:
    damage, message = DAMAGE[name]
    CARD.inspect(copy)
    damage(copy)
    with pytest.raises(InvalidFolder, match=message) as caught:
        CARD.inspect(copy)
    assert "\n" not in str(caught.value)
    assert str(copy) in str(caught.value) or name == "odd schedule"


def test_a_whole_folder(tiny: Callable[[str], Path]) -> None:
    summary = CARD.inspect(tiny("plain"))
    assert summary.components["transformer"] == ("transformer/config.json", WEIGHTS)
    assert summary.components["tokenizer"] == ("tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json")
    assert summary.components["scheduler"] == ("scheduler/scheduler_config.json",)
    assert set(summary.components) == {spec.name for spec in CARD.components}
    assert summary.classes["text_encoder_2"] == "T5EncoderModel"
    assert summary.recipe.guidance_scale == 3.0
    assert summary.recipe.num_inference_steps == 2


def test_without_a_recipe_the_pipelines_defaults_hold(tiny: Callable[[str], Path]) -> None:
    recipe = CARD.inspect(tiny("no recipe")).recipe
    assert (recipe.height, recipe.width, recipe.size_multiple) == (256, 256, 4)  # 128 latents of factor 2
    assert (recipe.guidance_scale, recipe.max_sequence_length, recipe.negative_prompt) == (1.0, 256, "")


def test_precision_variants_beside_the_weights_are_left_out(copy: Path) -> None:
    shutil.copy(copy / WEIGHTS, copy / "transformer" / "diffusion_pytorch_model.fp16.safetensors")
    assert CARD.inspect(copy).components["transformer"] == ("transformer/config.json", WEIGHTS)


@pytest.fixture
def sharded(copy: Path) -> Path:
    """The folder with its transformer in several files."""
    model = FluxTransformer2DModel.from_pretrained(copy / "transformer")
    (copy / WEIGHTS).unlink()
    model.save_pretrained(copy / "transformer", max_shard_size="60KB")
    assert not (copy / WEIGHTS).exists()
    return copy


def shards(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "transformer").glob("*-of-*.safetensors"))


def test_sharded_weights(sharded: Path) -> None:
    found = CARD.inspect(sharded).components["transformer"]
    assert len(shards(sharded)) > 1
    assert found == ("transformer/config.json", INDEX, *(f"transformer/{name}" for name in shards(sharded)))


def lose_a_tensor(folder: Path) -> None:
    weight_map = json.loads((folder / INDEX).read_text())["weight_map"]
    edit(folder / INDEX, weight_map={**weight_map, "phantom.weight": shards(folder)[0]})


SHARD_DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a shard missing": (
        lambda f: (f / "transformer" / shards(f)[1]).unlink(),
        "00002-of-.*safetensors is missing",
    ),
    "a shard cut": (
        lambda f: truncate(f / "transformer" / shards(f)[1], 2),
        "00002-of-.*safetensors is damaged",
    ),
    "a tensor missing": (lose_a_tensor, "00001-of-.* lacks tensor phantom.weight that the index promises"),
    "outside": (
        lambda f: edit(f / INDEX, weight_map={"a": "../vae/x.safetensors"}),
        "points outside its folder",
    ),
    "no map": (lambda f: edit(f / INDEX, weight_map={}), "has no weight_map"),
    "index no JSON": (lambda f: truncate(f / INDEX, 4), "index.json is not valid JSON"),
}


@pytest.mark.parametrize("name", SHARD_DAMAGE)
def test_sharded_damage_is_found(sharded: Path, name: str) -> None:
    damage, message = SHARD_DAMAGE[name]
    damage(sharded)
    with pytest.raises(InvalidFolder, match=message):
        CARD.inspect(sharded)
