"""A composed folder is its generator's with refiners in it; every refusal names the place and the remedy."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from diffusers import FluxPipeline

from mutoscope.models.registry import get_card
from mutoscope.models.starter.folders import starter_folder
from mutoscope.platform.errors import InvalidFolder

UNIRL, MULTI = "unirl-qwenflux", "multi-expert"


@pytest.fixture
def copy(tiny: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a card's folder, to be damaged."""
    return lambda card_id: Path(shutil.copytree(tiny(card_id), tmp_path / "folder"))


def edit(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_components_of_the_parts_go_by_their_parts_names(tiny: Callable[[str], Path]) -> None:
    folder = tiny(MULTI)
    summary = get_card(MULTI).inspect(folder)
    own = get_card("flux-t2i").inspect(folder)
    assert {name: summary.components[name] for name in own.components} == own.components
    added = set(summary.components) - set(own.components)
    assert added == {f"refiner_{n}{suffix}" for n in (1, 2, 3) for suffix in ("", "_tokenizer")}
    assert summary.root("refiner_2") == summary.root("refiner_2_tokenizer") == folder / "refiner_2"
    assert summary.components["refiner_2"][-1] == "refiner_2/model.safetensors"
    assert summary.classes["refiner_2"] == "Qwen2ForCausalLM"


def test_the_recipe_holds_one_for_every_refiner(copy: Callable[[str], Path]) -> None:
    folder = copy(MULTI)
    edit(folder / "refiner_2" / "recipe.json", temperature=0.5, max_new_tokens=3)
    recipe = get_card(MULTI).inspect(folder).recipe
    assert (recipe.height, recipe.width) == (16, 24)
    assert list(recipe.refiners) == ["refiner_1", "refiner_2", "refiner_3"]
    assert [(r.temperature, r.max_new_tokens) for r in recipe.refiners.values()] == [(1, 8), (0.5, 3), (1, 8)]
    again = type(recipe).model_validate_json(json.dumps(recipe.model_dump(mode="json"), sort_keys=True))
    assert again == recipe


def test_the_generators_pipeline_opens_the_folder(tiny: Callable[[str], Path]) -> None:
    pipeline = FluxPipeline.from_pretrained(tiny(UNIRL), local_files_only=True)
    assert pipeline.transformer.config.in_channels == 16


def test_inspecting_imports_no_torch(tiny: Callable[[str], Path]) -> None:
    code = (
        "import sys; from pathlib import Path; from mutoscope.models.registry import get_card; "
        "get_card('multi-expert').inspect(Path(sys.argv[1])); "
        "print({'torch', 'transformers', 'diffusers'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tiny(MULTI))], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


def test_the_starter_folder_is_put_together_of_links() -> None:
    folder = starter_folder(UNIRL)
    assert folder is not None
    summary = get_card(UNIRL).inspect(folder)
    assert {"refiner", "refiner_tokenizer", "transformer"} <= set(summary.components)
    assert {path.name for path in folder.iterdir() if not path.is_symlink()} == {"model_index.json"}
    assert starter_folder(UNIRL) == folder


DAMAGE: dict[str, tuple[str, Callable[[Path], Any], str]] = {
    "no refiner": (
        UNIRL,
        lambda f: (shutil.rmtree(f / "refiner"), edit(f / "model_index.json", refiner=[None, None])),
        "folder has no refiner: unirl-qwenflux needs a language model's folder of that name",
    ),
    "named but not there": (
        UNIRL,
        lambda f: shutil.rmtree(f / "refiner"),
        "folder/refiner is missing: copy the refiner's folder there",
    ),
    "another card's": (
        UNIRL,
        lambda f: shutil.copytree(f / "refiner", f / "refiner_1"),
        "holds refiner_1: unirl-qwenflux takes refiner; rename or remove it",
    ),
    "too many": (
        MULTI,
        lambda f: shutil.copytree(f / "refiner_1", f / "refiner_9"),
        "holds refiner_9: multi-expert takes refiner_1 to refiner_8; rename or remove it",
    ),
    "a gap": (
        MULTI,
        lambda f: (shutil.rmtree(f / "refiner_2"), edit(f / "model_index.json", refiner_2=[None, None])),
        "has no refiner_2: multi-expert needs a language model's folder of that name",
    ),
    "a damaged refiner": (
        MULTI,
        lambda f: (f / "refiner_3" / "tokenizer.json").unlink(),
        "refiner_3 has no tokenizer: copy tokenizer.json into it",
    ),
    "a damaged generator": (MULTI, lambda f: shutil.rmtree(f / "vae"), "vae is missing: copy the vae"),
    "no index": (UNIRL, lambda f: (f / "model_index.json").unlink(), "has no model_index.json"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_told_in_one_line(name: str, copy: Callable[[str], Path]) -> None:
    card_id, damage, line = DAMAGE[name]
    folder = copy(card_id)
    damage(folder)
    with pytest.raises(InvalidFolder, match=line) as caught:
        get_card(card_id).inspect(folder)
    assert "\n" not in str(caught.value)
