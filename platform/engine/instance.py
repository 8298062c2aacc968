"""An instance: a card resident on a device, every component at a known weight version."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from mutoscope.platform.engine.batching import Batcher
from mutoscope.platform.engine.card import RECIPE, Card, Recipe, invalid_parameter, resolve_entrypoint
from mutoscope.platform.engine.held import require_held
from mutoscope.platform.engine.loop import BuildContext, Program
from mutoscope.platform.engine.views import origin_of
from mutoscope.platform.errors import InvalidFolder

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Instance:
    """What the engine runs requests on. It never changes: nothing of any request is kept here.

    Two instances are never equal, whatever they share: a request belongs to one of them.

    Attributes:
        components: what the program was built over, by name; modules may be shared with other instances.
        weights: artifact digest of each component's weights, as far as the caller knows them.
        batcher: how steps of its requests share calls; as it comes, every row has a call of its own.
    """

    card: Card
    program: Program
    recipe: Recipe
    device: torch.device
    dtype: torch.dtype = torch.float32
    components: Mapping[str, Any] = field(default_factory=dict)
    weights: Mapping[str, str] = field(default_factory=dict)
    batcher: Batcher = field(default_factory=Batcher)

    def holds(self, part: Any) -> bool:
        """Whether `part` is this instance, one of its components, or the module that one is a view of."""
        if part is self:
            return True
        for component in self.components.values():
            origin = origin_of(component)
            if part is component or (origin is not None and part is origin.base):
                return True
        return False

    def require_current(self) -> None:
        """Refuse to begin a request on weights that a sync has overwritten.

        Raises:
            RunFailed: a module holds other weights by now than this instance names.
        """
        require_held(self.card.id, self.components, self.weights)

    def synchronize(self) -> None:
        """Wait until the device has done what it was given, so that progress and timings tell the truth."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def load_instance(
    card: Card,
    source: Path | Mapping[str, Path],
    *,
    device: str | torch.device = "cpu",
    dtype: str = "float32",
    weights: Mapping[str, str] | None = None,
    recipe: Recipe | Mapping[str, Any] | None = None,
) -> Instance:
    """Load a card's components and build its program.

    Args:
        source: a diffusers-format folder, which is inspected first; or a folder for each component, wherever
            these lie, trusted as they are. With the latter the resolved recipe is `recipe`, or the JSON file
            `source["recipe"]` (or `recipe.json` in that folder).
        dtype: "float32", "bfloat16" or "float16".
        weights: artifact digest by component, recorded on the instance.
        recipe: overrides the recipe found in `source`.

    Raises:
        InvalidFolder: a component or the recipe is missing, damaged or of another class.
    """
    if isinstance(source, Mapping):
        paths = {name: Path(path) for name, path in source.items() if name != RECIPE}
        resolved = _recipe(card, recipe if recipe is not None else _read_recipe(card, source))
    else:
        summary = card.inspect(Path(source))
        paths = {name: summary.root(name) for name in summary.components}
        resolved = summary.recipe if recipe is None else _recipe(card, recipe)
    target, precision = torch.device(device), _DTYPES[dtype]
    components = load_components(card, paths, device=target, dtype=precision)
    return assemble(card, components, resolved, device=target, dtype=precision, weights=weights)


def load_components(
    card: Card, paths: Mapping[str, Path], *, device: torch.device, dtype: torch.dtype
) -> dict[str, Any]:
    """Load those components of a card that `paths` names. Raises InvalidFolder."""
    loaded: dict[str, Any] = resolve_entrypoint(card.loader)(paths, device=device, dtype=dtype)
    return loaded


def assemble(
    card: Card,
    components: Mapping[str, Any],
    recipe: Recipe,
    *,
    device: torch.device,
    dtype: torch.dtype,
    weights: Mapping[str, str] | None = None,
) -> Instance:
    """An instance over loaded components, which other instances may share.

    Raises:
        InvalidFolder: a component that is not optional is missing.
    """
    for spec in card.components:
        if spec.name not in components and not spec.optional:
            raise InvalidFolder(
                f"component {spec.name} has no folder: give one for every component of {card.id}"
            )
    program = _program(card, BuildContext(components, recipe, device, dtype))
    return Instance(card, program, recipe, device, dtype, dict(components), dict(weights or {}))


def with_components(
    instance: Instance, components: Mapping[str, Any], weights: Mapping[str, str]
) -> Instance:
    """An instance like another, apart from these components and the digests of their weights."""
    parts = {**instance.components, **components}
    context = BuildContext(parts, instance.recipe, instance.device, instance.dtype)
    return replace(
        instance,
        program=_program(instance.card, context),
        components=parts,
        weights={**instance.weights, **weights},
    )


def _program(card: Card, context: BuildContext) -> Program:
    program: Program = resolve_entrypoint(card.builder)(context)
    return program


def _read_recipe(card: Card, source: Mapping[str, Path]) -> Mapping[str, Any]:
    if RECIPE not in source:
        raise InvalidFolder(f"{card.id} comes without a recipe: give one beside its components")
    path = Path(source[RECIPE])
    path = path / "recipe.json" if path.is_dir() else path
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidFolder(
            f"{path} is not a readable recipe ({error}): import the card's folder again"
        ) from None
    if not isinstance(value, dict):
        raise InvalidFolder(f"{path} holds no JSON object: import the card's folder again")
    return value


def _recipe(card: Card, given: Recipe | Mapping[str, Any]) -> Recipe:
    if isinstance(given, Recipe):
        return given
    try:
        return card.recipe.model_validate(dict(given))
    except ValidationError as error:
        raise InvalidFolder(f"recipe of {card.id}: {invalid_parameter(error, given)}") from None
