"""Inspection of a composed card's folder, without torch.

The folder is the generator's own, with each refiner's folder, as its language model was published, put into
it under the refiner's name. `model_index.json` names the refiners beside the generator's components, so the
generator's pipeline still opens the folder.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

from mutoscope.models.common.files import read_json
from mutoscope.models.common.folder import INDEX
from mutoscope.models.registry import get_card
from mutoscope.models.unified.card import MULTI_EXPERT, UNIRL_QWENFLUX
from mutoscope.models.unified.composition import REFINER, Composition, component_names
from mutoscope.platform.engine.card import FolderSummary
from mutoscope.platform.errors import InvalidFolder

_PART = re.compile(r"refiner(_\d+)?")


def inspect(composition: Composition, folder: Path) -> FolderSummary:
    """Check every part by its own card and join what they found. Raises InvalidFolder."""
    card, refiner = get_card(composition.id), get_card(REFINER)
    generator = get_card(composition.generator).inspect(folder)
    components, classes, roots = dict(generator.components), dict(generator.classes), dict(generator.roots)
    recipes = {}
    for part in _parts(composition, folder):
        found = refiner.inspect(folder / part)
        recipes[part] = found.recipe.model_dump()
        for name, outer in component_names(refiner, part).items():
            components[outer] = tuple(f"{part}/{path}" for path in found.components[name])
            classes[outer] = found.classes[name]
            roots[outer] = Path(part, found.roots.get(name, name)).as_posix()
    recipe = card.recipe.model_validate({**generator.recipe.model_dump(), "refiners": recipes})
    return FolderSummary(folder, components, recipe, classes, roots)


def _parts(composition: Composition, folder: Path) -> tuple[str, ...]:
    """The refiners in the folder: the first of the composition's, without a gap."""
    index = read_json(folder / INDEX)
    named = {name for name, entry in index.items() if _PART.fullmatch(name) and entry != [None, None]}
    held = {path.name for path in folder.iterdir() if path.is_dir() and _PART.fullmatch(path.name)}
    for name in sorted(named - held):
        raise InvalidFolder(f"{folder / name} is missing: copy the refiner's folder there")
    allowed = composition.refiners
    for name in sorted(held - set(allowed)):
        span = allowed[0] if len(allowed) == 1 else f"{allowed[0]} to {allowed[-1]}"
        raise InvalidFolder(f"{folder} holds {name}: {composition.id} takes {span}; rename or remove it")
    parts = tuple(part for part in allowed if part in held)
    for wanted, part in zip(allowed, parts or ("",), strict=False):
        if wanted != part:
            raise InvalidFolder(
                f"{folder} has no {wanted}: {composition.id} needs a language model's folder of that name"
            )
    return parts


inspect_unirl_qwenflux = partial(inspect, UNIRL_QWENFLUX)
inspect_multi_expert = partial(inspect, MULTI_EXPERT)
