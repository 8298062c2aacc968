"""Inspection of Wan folders: what is accepted, what it finds, and one line for every kind of damage."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from diffusers import WanTransformer3DModel
from safetensors.torch import load_file, save_file

from mutoscope.models.wan.card import CARD, WanRecipe
from mutoscope.platform.engine.instance import load_instance
from mutoscope.platform.errors import InvalidFolder
from tests.models.wan.folders import (
    EXPAND,
    LAYOUTS,
    PLAIN,
    RECIPE,
    SECOND,
    VISION_UNIPC,
    Layout,
    write_folder,
)

FolderOf = Callable[[Layout], Path]
Damage = Callable[[Path], None]

WEIGHTS = "diffusion_pytorch_model.safetensors"


def edit(path: str, **changes: Any) -> Damage:
    """Change fields of a JSON file of the folder."""

    def apply(folder: Path) -> None:
        file = folder / path
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))

    return apply


def write(path: str, text: str) -> Damage:
    def apply(folder: Path) -> None:
        (folder / path).write_text(text)

    return apply


def remove(path: str) -> Damage:
    def apply(folder: Path) -> None:
        target = folder / path
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink()

    return apply


def truncate(path: str) -> Damage:
    def apply(folder: Path) -> None:
        file = folder / path
        file.write_bytes(file.read_bytes()[:-7])

    return apply


def pickle_only(folder: Path) -> None:
    (folder / "vae" / WEIGHTS).rename(folder / "vae" / "diffusion_pytorch_model.bin")


DAMAGES: dict[str, tuple[Layout, Damage, str]] = {
    "no index": (PLAIN, remove("model_index.json"), "has no model_index.json"),
    "index cut": (PLAIN, write("model_index.json", '{"_class_name": '), "not valid JSON"),
    "other family": (PLAIN, edit("model_index.json", _class_name="FluxPipeline"), "holds a FluxPipeline"),
    "text to video": (PLAIN, edit("model_index.json", _class_name="WanPipeline"), "text-to-video"),
    "unnamed": (PLAIN, edit("model_index.json", vae=[None, None]), "names no vae"),
    "other class": (PLAIN, edit("model_index.json", vae=["diffusers", "AutoencoderKL"]), "AutoencoderKLWan"),
    "no component": (PLAIN, remove("text_encoder"), "text_encoder is missing"),
    "config cut": (PLAIN, write("transformer/config.json", "{"), "transformer/config.json is not valid JSON"),
    "no config": (PLAIN, remove("vae/config.json"), "vae/config.json is missing"),
    "no weights": (PLAIN, remove(f"transformer/{WEIGHTS}"), "transformer has no weights"),
    "weights cut": (PLAIN, truncate(f"vae/{WEIGHTS}"), "is damaged"),
    "weights empty": (PLAIN, write(f"vae/{WEIGHTS}", ""), "truncated"),
    "weights pickled": (PLAIN, pickle_only, "no safetensors"),
    "no tokenizer": (PLAIN, remove("tokenizer/tokenizer_config.json"), "tokenizer"),
    "no processor": (VISION_UNIPC, remove("image_processor/preprocessor_config.json"), "image_processor"),
    "no flow": (
        VISION_UNIPC,
        edit("scheduler/scheduler_config.json", use_flow_sigmas=False),
        "flow-matching",
    ),
    "karras": (PLAIN, edit("scheduler/scheduler_config.json", use_karras_sigmas=True), "use_karras_sigmas"),
    "dynamic": (
        PLAIN,
        edit("scheduler/scheduler_config.json", use_dynamic_shifting=True),
        "dynamic shifting",
    ),
    "T2V channels": (PLAIN, edit("transformer/config.json", in_channels=16), "transformer in_channels is 16"),
    "channels out": (PLAIN, edit("transformer/config.json", out_channels=8), "transformer out_channels is 8"),
    "expert channels": (
        SECOND,
        edit("transformer_2/config.json", in_channels=16),
        "transformer_2 in_channels",
    ),
    "text width": (PLAIN, edit("transformer/config.json", text_dim=4096), "transformer text_dim is 4096"),
    "statistics": (PLAIN, edit("vae/config.json", latents_mean=[0.0] * 8), "length of latents_mean is 8"),
    "spatial": (PLAIN, edit("vae/config.json", scale_factor_spatial=16), "scale_factor_spatial 16"),
    "temporal": (PLAIN, edit("vae/config.json", scale_factor_temporal=8), "scale_factor_temporal 8"),
    "frames": (
        PLAIN,
        edit("vae/config.json", scale_factor_temporal=2, temperal_downsample=[False, False, True]),
        "packs 2 frames",
    ),
    "blind": (PLAIN, edit("transformer/config.json", image_dim=32), "names no image_encoder"),
    "unseen": (VISION_UNIPC, edit("transformer/config.json", image_dim=None), "image_dim is null"),
    "image width": (VISION_UNIPC, edit("transformer/config.json", image_dim=1280), "image_dim is 1280"),
    "no boundary": (SECOND, edit("model_index.json", boundary_ratio=None), "no boundary_ratio"),
    "no expert": (SECOND, edit("model_index.json", transformer_2=[None, None]), "no transformer_2"),
    "recipe cut": (PLAIN, write("recipe.json", "{"), "recipe.json is not valid JSON"),
    "recipe typo": (PLAIN, edit("recipe.json", num_frame=17), "num_frame=17"),
    "recipe value": (PLAIN, edit("recipe.json", num_inference_steps=0), "num_inference_steps=0"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_one_clear_line(name: str, folder_of: FolderOf, tmp_path: Path) -> None:
    layout, damage, expected = DAMAGES[name]
    folder = Path(shutil.copytree(folder_of(layout), tmp_path / "card"))
    CARD.inspect(folder)
    damage(folder)
    with pytest.raises(InvalidFolder) as caught:
        CARD.inspect(folder)
    line = str(caught.value)
    assert expected in line
    assert str(folder) in line or "scheduler" in line
    assert "\n" not in line
    assert ":" in line, "no remedy"


def test_missing_folder_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidFolder, match="is not a folder"):
        CARD.inspect(tmp_path / "absent")


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_every_layout_is_accepted_with_its_files(layout: Layout, folder_of: FolderOf) -> None:
    folder = folder_of(layout)
    summary = CARD.inspect(folder)
    present = {path.name for path in folder.iterdir() if path.is_dir()}
    assert set(summary.components) == set(summary.classes) == present
    on_disk = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and path.parent != folder
    }
    assert {name for names in summary.components.values() for name in names} == on_disk
    recipe = summary.recipe
    assert isinstance(recipe, WanRecipe)
    assert recipe.boundary_ratio == (0.9 if layout.second else None)
    assert recipe.expand_timesteps is layout.expand
    assert recipe.size_multiple == (32 if layout.expand else 16)
    assert {name: getattr(recipe, name) for name in RECIPE} == RECIPE


@pytest.mark.parametrize(
    ("layout", "expected"),
    [(PLAIN, (480, 832, 81, 16)), (EXPAND, (704, 1280, 121, 24))],
    ids=lambda value: getattr(value, "name", None),
)
def test_without_a_recipe_the_released_defaults_hold(
    layout: Layout, expected: tuple[int, ...], folder_of: FolderOf, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(folder_of(layout), tmp_path / "card"))
    (folder / "recipe.json").unlink()
    recipe = CARD.inspect(folder).recipe
    assert isinstance(recipe, WanRecipe)
    assert (recipe.height, recipe.width, recipe.num_frames, recipe.fps) == expected
    assert (recipe.num_inference_steps, recipe.guidance_scale, recipe.max_sequence_length) == (50, 5.0, 512)


def test_a_recipe_cannot_change_what_the_weights_are(tmp_path: Path) -> None:
    folder = write_folder(
        tmp_path / "card", PLAIN, RECIPE | {"boundary_ratio": 0.5, "expand_timesteps": True}
    )
    recipe = CARD.inspect(folder).recipe
    assert isinstance(recipe, WanRecipe)
    assert (recipe.boundary_ratio, recipe.expand_timesteps) == (None, False)


def test_a_ti2v_folder_may_name_the_text_pipeline(folder_of: FolderOf, tmp_path: Path) -> None:
    """The released TI2V folder serves text and image to video and names the former."""
    folder = Path(shutil.copytree(folder_of(EXPAND), tmp_path / "card"))
    edit("model_index.json", _class_name="WanPipeline")(folder)
    assert "transformer" in CARD.inspect(folder).components


def test_a_lost_tensor_is_refused_when_loading(folder_of: FolderOf, tmp_path: Path) -> None:
    """Loading would fill it with random numbers."""
    folder = Path(shutil.copytree(folder_of(PLAIN), tmp_path / "card"))
    weights = load_file(folder / "transformer" / WEIGHTS)
    del weights["proj_out.weight"]
    save_file(weights, folder / "transformer" / WEIGHTS, metadata={"format": "pt"})
    with pytest.raises(InvalidFolder, match=r"proj_out\.weight"):
        load_instance(CARD, folder)


def test_sharded_weights_are_whole_or_refused(folder_of: FolderOf, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(folder_of(PLAIN), tmp_path / "card"))
    (folder / "transformer" / WEIGHTS).unlink()
    model = WanTransformer3DModel.from_pretrained(folder_of(PLAIN) / "transformer")
    model.save_pretrained(folder / "transformer", max_shard_size="50KB")
    shards = sorted(path.name for path in (folder / "transformer").glob("*.safetensors"))
    assert len(shards) > 1
    names = CARD.inspect(folder).components["transformer"]
    assert {Path(name).name for name in names} == {"config.json", f"{WEIGHTS}.index.json", *shards}
    (folder / "transformer" / shards[-1]).unlink()
    with pytest.raises(InvalidFolder, match="is missing"):
        CARD.inspect(folder)


def test_card_and_inspection_need_no_torch(folder_of: FolderOf) -> None:
    code = (
        "import sys; from pathlib import Path; from mutoscope.models.wan.card import CARD;"
        "CARD.inspect(Path(sys.argv[1]));"
        "sys.exit(', '.join({'torch', 'diffusers', 'transformers'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, folder_of(PLAIN)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
