"""Weights import: a folder of weights becomes artifacts, one recorded run and weight versions.

Bytes first, then one row for the run with every file and component it generated, then the versions, all of a
folder at once. Stopping anywhere leaves at most unreferenced bytes: never a version without its files, never
a mixture of two folders. Importing the same bytes again changes nothing; a folder with one changed component
makes one new version.

No torch: the card's inspector decides from headers and configurations whether the folder is whole.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from mutoscope.platform.artifacts import ArtifactRef, ArtifactStore, manifest
from mutoscope.platform.artifacts.manifest import ComponentManifest, ManifestFile
from mutoscope.platform.catalog import Catalog, WeightVersion
from mutoscope.platform.engine.card import Card, Recipe
from mutoscope.platform.errors import InvalidFolder

RECIPE = "recipe"
"""The component every card has besides those it declares: the folder's resolved recipe."""


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
    """
    folder = folder.expanduser().resolve()
    summary = card.inspect(folder)
    store.check_writable()
    generated: dict[str, ArtifactRef] = {}
    components: dict[str, ArtifactRef] = {}
    for name, paths in summary.components.items():
        files = _put_files(store, folder, name, paths)
        generated |= {f"file:{name}/{path}": ref for path, ref in files.items()}
        components[name] = _put_manifest(store, name, files)
    components[RECIPE] = put_recipe(store, summary.recipe)
    generated |= {f"weights:{name}": ref for name, ref in components.items()}

    digests = {name: ref.digest for name, ref in components.items()}
    live = catalog.weights.live(card.id)
    if digests == {name: version.digest for name, version in live.items()}:
        return live
    run = catalog.runs.record_completed(
        "import",
        card=card.id,
        parameters={"folder": str(folder), "origin": origin},
        used={},
        generated=generated,
    )
    return catalog.weights.publish_all(card.id, digests, run.id)


def put_recipe(store: ArtifactStore, recipe: Recipe) -> ArtifactRef:
    """Store a resolved recipe; `read_recipe` reads it."""
    data = json.dumps(recipe.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return store.put(data.encode(), kind="json", media_type="application/json", meta={"component": RECIPE})


def read_recipe(store: ArtifactStore, card: Card, digest: str) -> Recipe:
    """The recipe that `put_recipe` stored. Raises ArtifactMissing or ArtifactCorrupt."""
    return card.recipe.model_validate_json(store.get(digest))


def _put_files(
    store: ArtifactStore, folder: Path, component: str, paths: Sequence[str]
) -> dict[str, ArtifactRef]:
    """Store one component's files; references by path within the component."""
    files: dict[str, ArtifactRef] = {}
    for path in paths:
        try:
            ref = store.put(folder / path, kind=manifest.FILE_KIND, media_type=_media_type(path))
        except FileNotFoundError:
            raise InvalidFolder(
                f"{folder / path} is missing: copy the folder again from where it came"
            ) from None
        files[PurePosixPath(path).relative_to(component).as_posix()] = ref
    return files


def _put_manifest(store: ArtifactStore, component: str, files: dict[str, ArtifactRef]) -> ArtifactRef:
    listed = ComponentManifest(
        component, tuple(ManifestFile(path, ref.digest, ref.size) for path, ref in files.items())
    )
    return store.put(
        listed.to_bytes(),
        kind=manifest.KIND,
        media_type=manifest.MEDIA_TYPE,
        meta={"component": component, "files": len(listed.files), "bytes": listed.total_size},
    )


def _media_type(path: str) -> str:
    match PurePosixPath(path).suffix:
        case ".json":
            return "application/json"
        case ".safetensors":
            return "application/vnd.safetensors"
        case ".txt":
            return "text/plain"
    return "application/octet-stream"
