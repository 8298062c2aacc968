"""Inspection of a diffusers-format folder, without torch.

A card folder is what `save_pretrained` of a diffusers pipeline writes: `model_index.json` and one folder per
component. It may also hold a `recipe.json` with the generation defaults that suit the weights.
`inspect_folder` finds what would make a load fail, or worse, succeed with random weights, before anything is
imported or copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from mutoscope.models.common.files import read_json, weight_files
from mutoscope.platform.engine.card import ComponentSpec, Recipe, invalid_parameter
from mutoscope.platform.errors import InvalidFolder

INDEX = "model_index.json"
RECIPE = "recipe.json"
UNWEIGHTED_CONFIGS = ("scheduler_config.json", "tokenizer_config.json", "preprocessor_config.json")

RecipeT = TypeVar("RecipeT", bound=Recipe)


@dataclass(frozen=True, slots=True)
class Contents:
    """A checked folder.

    Attributes:
        index: the parsed `model_index.json`.
        files: names relative to the folder, by component; what a load reads and nothing else.
        classes: the class that the index declares, by component.
        configs: each component's own configuration.
    """

    folder: Path
    index: Mapping[str, Any]
    files: dict[str, tuple[str, ...]] = field(default_factory=dict)
    classes: dict[str, str] = field(default_factory=dict)
    configs: dict[str, dict[str, Any]] = field(default_factory=dict)


def inspect_folder(folder: Path, specs: Sequence[ComponentSpec], pipelines: Sequence[str]) -> Contents:
    """Check that `folder` holds one of `pipelines` with every component of `specs` whole and of a known
    class.

    Returns:
        Contents: file names relative to `folder`, by component; optional components that are absent are left
            out.

    Raises:
        InvalidFolder: one line that names the file at fault and the remedy.
    """
    index = _read_index(folder, pipelines)
    contents = Contents(folder, index)
    for spec in specs:
        declared = _declared_class(contents, spec)
        if declared is not None:
            _inspect_component(contents, spec, declared)
    return contents


def inspect_beside(contents: Contents, spec: ComponentSpec) -> None:
    """Check an optional component that lies in the folder without being named by its index, if it is there.

    Raises:
        InvalidFolder: as `inspect_folder`.
    """
    if (contents.folder / spec.name).is_dir():
        _inspect_component(contents, spec, spec.classes[0])


def _read_index(folder: Path, pipelines: Sequence[str]) -> dict[str, Any]:
    if not folder.is_dir():
        raise InvalidFolder(f"{folder} is not a folder: give the path of a diffusers-format folder")
    if not (folder / INDEX).is_file():
        raise InvalidFolder(
            f"{folder} has no {INDEX}: give the folder that a pipeline's save_pretrained wrote"
        )
    index = read_json(folder / INDEX)
    found = index.get("_class_name")
    if found not in pipelines:
        raise InvalidFolder(
            f"{folder} holds a {found}, not a {' or '.join(pipelines)}: use the card of its family"
        )
    return index


def _declared_class(contents: Contents, spec: ComponentSpec) -> str | None:
    """The class the index gives a component; None where an optional one is absent, which it writes as
    nulls.
    """
    path, entry = contents.folder / INDEX, contents.index.get(spec.name)
    if entry in (None, [None, None]):
        if spec.optional:
            return None
        raise InvalidFolder(f"{path} names no {spec.name}: use a folder with every component")
    if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[1], str):
        raise InvalidFolder(f"{path} describes {spec.name} as {entry!r}: expected [library, class]")
    if entry[1] not in spec.classes:
        raise InvalidFolder(
            f"{path} declares {spec.name} as {entry[1]}: the card needs {' or '.join(spec.classes)}"
        )
    return str(entry[1])


def _inspect_component(contents: Contents, spec: ComponentSpec, declared: str) -> None:
    folder = contents.folder / spec.name
    if not folder.is_dir():
        raise InvalidFolder(f"{folder} is missing: copy the {spec.name} component into the folder")
    config, names = _weighted(folder, spec) if spec.weighted else _unweighted(folder, spec)
    contents.configs[spec.name] = config
    contents.classes[spec.name] = declared
    contents.files[spec.name] = tuple(f"{spec.name}/{name}" for name in names)


def _weighted(folder: Path, spec: ComponentSpec) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Configuration and files of a component with weights; its configuration may name its class too."""
    path = folder / "config.json"
    config = read_json(path)
    if (own := config_class(config)) not in (None, *spec.classes):
        raise InvalidFolder(f"{path} is of a {own}: the card needs {' or '.join(spec.classes)}")
    return config, (path.name, *weight_files(folder))


def _unweighted(folder: Path, spec: ComponentSpec) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Configuration and files of a scheduler, tokenizer or image processor: everything in its folder."""
    names = tuple(sorted(p.name for p in folder.iterdir() if p.is_file() and not p.name.startswith(".")))
    config = next((name for name in UNWEIGHTED_CONFIGS if name in names), None)
    if config is None:
        raise InvalidFolder(f"{folder} has no configuration: copy the {spec.name} component again")
    for name in names:
        if name.endswith(".json"):
            read_json(folder / name)
    return read_json(folder / config), names


def config_class(config: Mapping[str, Any]) -> str | None:
    """The class a component's own configuration names: `_class_name`, or the first of `architectures`."""
    name = config.get("_class_name") or next(iter(config.get("architectures") or ()), None)
    return None if name is None else str(name)


def read_recipe(folder: Path, kind: type[RecipeT], defaults: Mapping[str, Any]) -> RecipeT:
    """The folder's recipe: `defaults`, overridden by its `recipe.json` if there is one.

    Raises:
        InvalidFolder: `recipe.json` is unreadable or a field of it is unknown or out of range.
    """
    path = folder / RECIPE
    given = read_json(path) if path.is_file() else {}
    try:
        return kind.model_validate({**defaults, **given})
    except ValidationError as error:
        raise InvalidFolder(f"{path}: {invalid_parameter(error, given)}") from None


def require_equal(contents: Contents, ours: tuple[str, str, Any], theirs: tuple[str, str, Any]) -> None:
    """Refuse components that cannot work together: two `(component, what, value)` must agree in value."""
    if ours[2] != theirs[2]:
        (one, what, value), (other, where, found) = ours, theirs
        raise InvalidFolder(
            f"{contents.folder} mixes models: {one} {what} is {value} but {other} {where} is {found}; "
            "take both components from one model"
        )
