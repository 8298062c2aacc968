"""Inspection of Cosmos3 folders: what is accepted, what it finds, and one line for every kind of misfit."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from diffusers import Cosmos3OmniPipeline
from safetensors.torch import load_file, save_file

from mutoscope.models.cosmos3.card import CARD, INSTRUCTION, CosmosRecipe
from mutoscope.platform.engine.instance import load_instance
from mutoscope.platform.errors import InvalidFolder
from tests.models.cosmos3.conftest import FOLDERS

FolderOf = Callable[[str], Path]
Damage = Callable[[Path], None]
WEIGHTS = "diffusion_pytorch_model.safetensors"


def edit(path: str, **changes: Any) -> Damage:
    """Change fields of a JSON file of the folder."""

    def apply(folder: Path) -> None:
        file = folder / path
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))

    return apply


def remove(path: str) -> Damage:
    def apply(folder: Path) -> None:
        target = folder / path
        shutil.rmtree(target) if target.is_dir() else target.unlink()

    return apply


def truncate(path: str) -> Damage:
    def apply(folder: Path) -> None:
        file = folder / path
        file.write_bytes(file.read_bytes()[:-7])

    return apply


SCHEDULER, TRANSFORMER, VAE = "scheduler/scheduler_config.json", "transformer/config.json", "vae/config.json"

DAMAGES: dict[str, tuple[Damage, str]] = {
    "no index": (remove("model_index.json"), "has no model_index.json: give the folder"),
    "other family": (
        edit("model_index.json", _class_name="WanPipeline"),
        "holds a WanPipeline, not a Cosmos3Omni",
    ),
    "no vae": (remove("vae"), "vae is missing: copy the vae component"),
    "other class": (
        edit(TRANSFORMER, _class_name="WanTransformer3DModel"),
        "the card needs Cosmos3OmniTransformer",
    ),
    "weights cut": (truncate(f"transformer/{WEIGHTS}"), "copy the folder again"),
    "no weights": (remove(f"transformer/{WEIGHTS}"), "transformer has no weights: add"),
    "channels": (
        edit(TRANSFORMER, latent_channel=48),
        "transformer latent_channel is 48 but vae z_dim is 16",
    ),
    "patches": (edit(TRANSFORMER, patch_latent_dim=48), "patch_latent_dim is 48 but vae z_dim x 4 is 64"),
    "mean": (edit(VAE, latents_mean=[0.0]), "vae z_dim is 16 but vae length of latents_mean is 1"),
    "factor": (edit(VAE, scale_factor_spatial=16), "states scale_factor_spatial 16 where its layers make 8"),
    "frames": (edit(VAE, temperal_downsample=[False, False, True]), "packs 2 frames into one"),
    "prediction": (edit(SCHEDULER, prediction_type="epsilon"), "predicts no velocity: set prediction_type"),
    "dynamic": (edit(SCHEDULER, use_dynamic_shifting=True), "asks for dynamic shifting"),
    "axes": (edit(TRANSFORMER, rope_axes_dim=[2, 2, 1]), r"divides 6 frequencies as \[2, 2, 1\]"),
    "heads": (edit(TRANSFORMER, num_attention_heads=5), "has 5 heads over 2 keys"),
    "no chat": (
        remove("text_tokenizer/chat_template.jinja"),
        "has no chat template: copy chat_template.jinja",
    ),
    "recipe": (edit("recipe.json", reasoning_tokens=-1), "reasoning_tokens=-1 is not valid: use 0 or more"),
    "misspelt": (edit("recipe.json", reasoning=4), "reasoning=4 is not valid"),
}


@pytest.fixture
def folder(folder_of: FolderOf, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(folder_of("qwen3"), tmp_path / "cosmos3"))


@pytest.mark.parametrize("name", FOLDERS)
def test_every_layout_is_accepted_and_is_a_pipelines_folder(name: str, folder_of: FolderOf) -> None:
    summary = CARD.inspect(folder_of(name))
    assert set(summary.components) == {spec.name for spec in CARD.components}
    assert "text_tokenizer/chat_template.jinja" in summary.components["text_tokenizer"]
    recipe = summary.recipe
    assert isinstance(recipe, CosmosRecipe)
    assert (recipe.size_multiple, recipe.vae_tile_multiple) == (8, 32)
    assert recipe.native_schedule == (name == "native")
    assert recipe.system_prompt == (name != "bare")
    pipeline = Cosmos3OmniPipeline.from_pretrained(folder_of(name))
    assert pipeline.config.use_native_flow_schedule == recipe.native_schedule


def test_what_weights_are_is_not_the_recipes_to_say(folder: Path) -> None:
    edit("recipe.json", native_schedule=True, system_prompt=False)(folder)
    recipe = CARD.inspect(folder).recipe
    assert isinstance(recipe, CosmosRecipe)
    assert (recipe.native_schedule, recipe.system_prompt) == (False, True)


def test_a_folder_without_a_recipe_has_the_released_defaults(folder: Path) -> None:
    (folder / "recipe.json").unlink()
    recipe = CARD.inspect(folder).recipe
    assert isinstance(recipe, CosmosRecipe)
    assert (recipe.height, recipe.width, recipe.num_frames, recipe.fps) == (720, 1280, 189, 24)
    assert (recipe.num_inference_steps, recipe.guidance_scale, recipe.vae_tile) == (35, 6.0, 0)
    assert (recipe.reasoning_tokens, recipe.reasoning_instruction, recipe.temperature) == (
        512,
        INSTRUCTION,
        0.0,
    )


@pytest.mark.parametrize("name", DAMAGES)
def test_each_misfit_is_one_line_with_a_remedy(name: str, folder: Path) -> None:
    damage, message = DAMAGES[name]
    damage(folder)
    with pytest.raises(InvalidFolder, match=message) as caught:
        CARD.inspect(folder)
    assert "\n" not in str(caught.value)


def test_a_missing_tensor_is_refused_at_load(folder: Path) -> None:
    path = folder / "transformer" / WEIGHTS
    tensors = load_file(path)
    del tensors["lm_head.weight"]
    save_file(tensors, path, {"format": "pt"})
    with pytest.raises(
        InvalidFolder, match=r"lacks weights for Cosmos3OmniTransformer, first lm_head\.weight"
    ):
        load_instance(CARD, folder)


def test_declaration_and_inspection_import_no_torch(folder_of: FolderOf) -> None:
    code = (
        "import sys; from pathlib import Path; from mutoscope.models.cosmos3.card import CARD; "
        "CARD.inspect(Path(sys.argv[1])); "
        "print(sorted({'torch', 'diffusers', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder_of("qwen3"))], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
