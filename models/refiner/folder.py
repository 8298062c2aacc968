"""Inspection of a refiner's folder, without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mutoscope.models.common.folder import RECIPE, read_recipe
from mutoscope.models.common.lm_folder import LmContents, inspect_lm
from mutoscope.models.refiner.card import CLASSES, PLACEHOLDER, RefinerRecipe
from mutoscope.platform.engine.card import FolderSummary
from mutoscope.platform.errors import InvalidFolder

_CONTEXT = 2048
"""What a Llama takes whose configuration does not say."""

_SAMPLING = ("do_sample", "temperature", "top_k", "top_p", "repetition_penalty")


def inspect(folder: Path) -> FolderSummary:
    """Check a language model's folder and read its recipe. Raises InvalidFolder."""
    contents = inspect_lm(folder, CLASSES)
    recipe = read_recipe(folder, RefinerRecipe, _defaults(contents))
    # What the weights are is not a recipe's to say.
    recipe = recipe.model_copy(update={"context": _context(contents)})
    _check_template(contents, recipe)
    if recipe.max_new_tokens >= recipe.context:
        raise InvalidFolder(
            f"{folder / RECIPE} sets max_new_tokens={recipe.max_new_tokens} where the context is "
            f"{recipe.context}: set it lower"
        )
    return FolderSummary(
        folder=folder,
        components={"llm": contents.model_files, "tokenizer": contents.tokenizer_files},
        recipe=recipe,
        classes={"llm": contents.kind, "tokenizer": str(contents.tokenizer.get("tokenizer_class"))},
        roots={"llm": ".", "tokenizer": "."},
    )


def _context(contents: LmContents) -> int:
    return int(contents.config.get("max_position_embeddings", _CONTEXT))


def _defaults(contents: LmContents) -> dict[str, Any]:
    """What `generate` would do; its 50 for an unsaid top_k included."""
    said = {
        name: contents.generation[name] for name in _SAMPLING if contents.generation.get(name) is not None
    }
    sampled = {"top_k": 50} if said.get("do_sample") else {}
    context = _context(contents)
    return {
        **sampled,
        **said,
        "stop_tokens": contents.stop_tokens,
        "context": context,
        "max_new_tokens": min(128, context // 2),
    }


def _check_template(contents: LmContents, recipe: RefinerRecipe) -> None:
    path = contents.folder / RECIPE
    if recipe.template is None:
        if not contents.chat:
            raise InvalidFolder(
                f"{contents.folder} has no chat template: write how the model is asked into {path.name}, "
                f'such as {{"template": "{PLACEHOLDER} =>"}}'
            )
    elif PLACEHOLDER not in recipe.template:
        raise InvalidFolder(f"{path} has a template without {PLACEHOLDER}: say where the prompt goes")
