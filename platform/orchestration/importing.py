"""Weights import: a folder of weights becomes artifacts, one recorded run and weight versions.

Bytes first, then one row for the run with every component it generated and what that consists of, then the
versions, all of a folder at once. Stopping anywhere leaves at most unreferenced bytes: never a version
without its files, never a mixture of two folders. Importing the same bytes again changes nothing; a folder
with one changed component makes one new version, which shares every tensor that has not changed.

No torch: the card's inspector decides from headers and configurations whether the folder is whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from mutoscope.platform import faults
from mutoscope.platform.artifacts import ArtifactRef, ArtifactStore
from mutoscope.platform.artifacts.components import StoredComponent, put_component
from mutoscope.platform.catalog import Catalog, WeightVersion
from mutoscope.platform.custody.users import register
from mutoscope.platform.engine.card import RECIPE, Card, FolderSummary, Recipe
from mutoscope.platform.errors import InvalidFolder, InvalidParameter


def import_folder(
    catalog: Catalog, store: ArtifactStore, card: Card, folder: Path, *, origin: str = "user"
) -> dict[str, WeightVersion]:
    """Store a folder's components and make them the card's live weights.

    Args:
        origin: who brought the folder, recorded with the run; "starter" for weights that ship with the
        package.

    Returns:
        The live version of each component, the recipe's included.

    Raises:
        InvalidFolder: the folder is damaged, incomplete or another family's; nothing was recorded.
        StoreUnwritable: the store refuses; nothing was recorded.
        InvalidParameter: a trainer, which has no weights of its own.
    """
    if card.weights_of is not None:
        raise InvalidParameter(
            "card", card.id, f"it trains the weights of {card.weights_of}: import them for that"
        )
    folder = folder.expanduser().resolve()
    summary = card.inspect(folder)
    store.check_writable()
    register(catalog, store)
    with catalog.leases.writing(f"import of {folder.name or folder} for {card.id}"):
        return _import(catalog, store, card, summary, origin)


def _import(
    catalog: Catalog, store: ArtifactStore, card: Card, summary: FolderSummary, origin: str
) -> dict[str, WeightVersion]:
    stored = {name: _put(store, summary, name) for name in summary.components}
    components = {name: component.manifest for name, component in stored.items()}
    components[RECIPE] = put_recipe(store, summary.recipe)
    faults.hit("import.stored")

    digests = {name: ref.digest for name, ref in components.items()}
    live = catalog.weights.live(card.id)
    if digests == {name: version.digest for name, version in live.items()}:
        # The same again, and all of it stored: rows that were marked as lost or collected meanwhile are back.
        catalog.artifacts.record_many(_every_object(components, stored))
        return live
    run = catalog.runs.record_completed(
        "import",
        card=card.id,
        parameters={"folder": str(summary.folder), "origin": origin},
        generated={f"weights:{name}": ref for name, ref in components.items()},
        members={component.manifest.digest: component.members for component in stored.values()},
    )
    faults.hit("import.recorded")
    return catalog.weights.publish_all(card.id, digests, run.id)


def _every_object(
    components: Mapping[str, ArtifactRef], stored: Mapping[str, StoredComponent]
) -> list[ArtifactRef]:
    members = (ref for component in stored.values() for ref in component.members.values())
    return [*components.values(), *(ref for ref in members if isinstance(ref, ArtifactRef))]


def put_recipe(store: ArtifactStore, recipe: Recipe) -> ArtifactRef:
    """Store a resolved recipe; `read_recipe` reads it."""
    data = json.dumps(recipe.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return store.put(data.encode(), kind="json", media_type="application/json", meta={"component": RECIPE})


def read_recipe(store: ArtifactStore, card: Card, digest: str) -> Recipe:
    """The recipe that `put_recipe` stored. Raises ArtifactMissing or ArtifactCorrupt."""
    return card.recipe.model_validate_json(store.get(digest))


def _put(store: ArtifactStore, summary: FolderSummary, component: str) -> StoredComponent:
    """Store one component's files, named relative to the folder it is loaded from."""
    places = [summary.folder / path for path in summary.components[component]]
    files = {place.relative_to(summary.root(component)).as_posix(): place for place in places}
    try:
        return put_component(store, component, files)
    except FileNotFoundError as error:
        raise InvalidFolder(
            f"{error.filename} is missing: copy the folder again from where it came"
        ) from None
