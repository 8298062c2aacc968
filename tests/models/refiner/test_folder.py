"""What makes a folder a refiner's and how its model is asked; refusals name the file and the remedy."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mutoscope.models.refiner.card import CARD, INSTRUCTION, RefinerRecipe
from mutoscope.platform.errors import InvalidFolder
from tests.support.tiny_lm import save_tiny_lm


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_lm(tmp_path_factory.mktemp("lm") / "folder")


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(made, tmp_path / "folder"))


def edit(path: Path, **fields: Any) -> None:
    before = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**before, **fields}))


def recipe_of(folder: Path) -> RefinerRecipe:
    recipe = CARD.inspect(folder).recipe
    assert isinstance(recipe, RefinerRecipe)
    return recipe


def test_both_components_lie_in_the_folder_itself(made: Path) -> None:
    summary = CARD.inspect(made)
    assert summary.components == {
        "llm": ("config.json", "generation_config.json", "model.safetensors"),
        "tokenizer": ("tokenizer_config.json", "tokenizer.json"),
    }
    assert {summary.root(name) for name in summary.components} == {made}
    assert summary.classes == {"llm": "Qwen2ForCausalLM", "tokenizer": "TokenizersBackend"}


def test_inspecting_imports_no_torch(made: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from mutoscope.models.registry import get_card; "
        "get_card('refiner-lm').inspect(Path(sys.argv[1])); "
        "print({'torch', 'transformers', 'diffusers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(made)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_recipe_takes_what_generate_would(folder: Path) -> None:
    (folder / "recipe.json").write_text('{"template": "{prompt} =>"}')
    edit(folder / "generation_config.json", do_sample=True, temperature=0.7, top_p=0.8, eos_token_id=[1, 2])
    recipe = recipe_of(folder)
    assert (recipe.do_sample, recipe.temperature, recipe.top_p) == (True, 0.7, 0.8)
    assert recipe.top_k == 50, "what generate does when top_k is not said"
    assert recipe.stop_tokens == (1, 2)
    assert (recipe.context, recipe.max_new_tokens) == (48, 24)


def test_the_recipe_file_goes_first_but_the_context_is_the_models(folder: Path) -> None:
    edit(folder / "recipe.json", temperature=0.5, max_new_tokens=7, context=4096)
    recipe = recipe_of(folder)
    assert (recipe.temperature, recipe.max_new_tokens, recipe.context) == (0.5, 7, 48)


def test_without_a_generation_configuration_the_models_own_end_counts(folder: Path) -> None:
    (folder / "generation_config.json").unlink()
    assert recipe_of(folder).stop_tokens == (1,)
    assert CARD.inspect(folder).components["llm"] == ("config.json", "model.safetensors")


def test_a_chat_template_needs_no_recipe(tmp_path: Path) -> None:
    chatty = save_tiny_lm(tmp_path / "chatty", chat=True, recipe={})
    recipe = recipe_of(chatty)
    assert (recipe.template, recipe.instruction) == (None, INSTRUCTION)


DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no folder": (shutil.rmtree, "folder is not a folder: give the path of a language model's folder"),
    "no configuration": (lambda f: (f / "config.json").unlink(), "config.json is missing: copy the folder"),
    "other class": (
        lambda f: edit(f / "config.json", architectures=["GPT2LMHeadModel"]),
        "is of a GPT2LMHeadModel: the card needs Qwen2ForCausalLM or LlamaForCausalLM",
    ),
    "windowed attention": (
        lambda f: edit(f / "config.json", use_sliding_window=True),
        "layers of windowed attention, which are not supported: use a model",
    ),
    "beams": (
        lambda f: edit(f / "generation_config.json", num_beams=4),
        "generation_config.json sets num_beams=4, which is not supported: remove the option",
    ),
    "weights cut": (
        lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:-1]),
        "model.safetensors is damaged",
    ),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "has no weights: add"),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "has no tokenizer: copy tokenizer.json"),
    "no tokenizer configuration": (
        lambda f: (f / "tokenizer_config.json").unlink(),
        "tokenizer_config.json is missing",
    ),
    "another model's tokenizer": (
        lambda f: edit(f / "config.json", vocab_size=20),
        "mixes models: its tokenizer names token 23 but config.json has vocab_size 20; take both from one",
    ),
    "no template": (
        lambda f: (f / "recipe.json").unlink(),
        "has no chat template: write how the model is asked into recipe.json, such as",
    ),
    "template without a place": (
        lambda f: edit(f / "recipe.json", template="say it"),
        r"recipe.json has a template without \{prompt\}: say where the prompt goes",
    ),
    "answers longer than the context": (
        lambda f: edit(f / "recipe.json", max_new_tokens=48),
        "sets max_new_tokens=48 where the context is 48: set it lower",
    ),
    "unknown field": (lambda f: edit(f / "recipe.json", tempreature=1), "recipe.json: tempreature=1"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_told_in_one_line(name: str, folder: Path) -> None:
    damage, line = DAMAGE[name]
    damage(folder)
    with pytest.raises(InvalidFolder, match=line) as caught:
        CARD.inspect(folder)
    assert "\n" not in str(caught.value)
