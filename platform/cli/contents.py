"""What a component's weights consist of: its files, and the tensors of those that are kept as tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mutoscope.platform.cli import render
from mutoscope.platform.errors import ArtifactMissing

if TYPE_CHECKING:
    from mutoscope.platform.artifacts import ArtifactStore
    from mutoscope.platform.artifacts.manifest import ManifestFile, Split

Contents = Mapping[str, Any]


def contents(store: ArtifactStore, digest: str) -> Contents:
    """Files with their tensors, and the base of an adapter, as plain data.

    ``files`` is None where there is nothing to list: the bytes were collected, or it is a recipe.
    """
    from mutoscope.platform.artifacts.manifest import manifest_in

    try:
        manifest = manifest_in(store.get(digest))
    except ArtifactMissing:
        manifest = None
    if manifest is None:
        return {"base": None, "files": None}
    return {"base": manifest.base, "files": [_file(file) for file in manifest.files]}


def show(found: Contents, *, tensors: bool) -> None:
    """A table of the files; with `tensors`, of every tensor below its file."""
    files: Sequence[Contents] | None = found["files"]
    if files is None:
        return
    if found["base"] is not None:
        render.say(f"an adapter for {found['base'][:12]}")
    render.say()
    rows = [row for file in files for row in (_row(file), *(_tensor_rows(file) if tensors else ()))]
    render.table(["file", "size", "kept as"], rows, empty="no files")


def _row(file: Contents) -> tuple[str, str, str]:
    if file["tensors"] is None:
        return file["path"], render.size(file["size"]), "one object"
    kept = f"{len(file['tensors'])} tensors in {file['objects']} objects"
    return file["path"], render.size(file["size"]), kept


def _tensor_rows(file: Contents) -> list[tuple[str, str, str]]:
    return [
        (f"· {one['name']}", render.size(one["size"]), f"{one['dtype']} {one['shape']}")
        for one in file["tensors"] or ()
    ]


def _file(file: ManifestFile) -> dict[str, Any]:
    described: dict[str, Any] = {"path": file.path, "size": file.size, "digest": file.digest}
    if file.split is None:
        return {**described, "objects": 1, "tensors": None}
    return {**described, "objects": _objects(file.split), "tensors": _tensors(file.split)}


def _objects(split: Split) -> int:
    own = sum(tensor.pack is None for tensor in split.tensors)
    return 1 + len(split.packs) + own  # the header is one too


def _tensors(split: Split) -> list[dict[str, Any]]:
    return [
        {
            "name": tensor.name,
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "size": tensor.size,
            "digest": tensor.digest,
        }
        for tensor in split.tensors
    ]
