"""Storing a component: its files' parts, and the manifest that names them together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from mutoscope.platform import faults
from mutoscope.platform.artifacts import manifest
from mutoscope.platform.artifacts.input import Input
from mutoscope.platform.artifacts.manifest import ComponentManifest, ManifestFile
from mutoscope.platform.artifacts.split import can_split, split_file
from mutoscope.platform.artifacts.store import ArtifactStore
from mutoscope.platform.errors import ArtifactCorrupt, InvalidParameter
from mutoscope.platform.refs import ArtifactRef

_MEDIA_TYPES = {
    ".json": "application/json",
    ".safetensors": "application/vnd.safetensors",
    ".txt": "text/plain",
}


class StoredComponent(NamedTuple):
    """The manifest, which a weight version points to, and its members by path: what the catalog must know
    beside it. The base is a digest alone; the catalog knows it already."""

    manifest: ArtifactRef
    members: dict[str, ArtifactRef | str]


def put_component(
    store: ArtifactStore, component: str, files: Mapping[str, bytes | Path], *, base: str | None = None
) -> StoredComponent:
    """Store one component. The manifest goes last, so whoever finds it finds its members.

    Args:
        files: path within the component to the bytes, or to the file that holds them. Safetensors files are
            split into their tensors; memory stays bounded whatever their size.
        base: digest of the manifest that these files are an adapter for. It must be in the store.

    Raises:
        StoreUnwritable: the store refuses.
        InvalidFolder: a safetensors file is damaged.
        InvalidParameter: a path leaves the component's folder, or the base is no component.
        FileNotFoundError: a file is gone.
    """
    if base is not None:
        _require_component(store, base)
    listed: list[ManifestFile] = []
    members: dict[str, ArtifactRef | str] = {} if base is None else {manifest.BASE_MEMBER: base}
    for path, source in files.items():
        _require_path(path)
        file, stored = put_file(store, path, source)
        listed.append(file)
        members |= stored
        faults.hit("component.file_stored")
    described = ComponentManifest(component, tuple(listed), base)
    ref = store.put(
        described.to_bytes(),
        kind=manifest.KIND,
        media_type=manifest.MEDIA_TYPE,
        meta={"component": component, "files": len(listed), "bytes": described.total_size},
    )
    return StoredComponent(ref, members)


def put_file(
    store: ArtifactStore, path: str, source: bytes | Path
) -> tuple[ManifestFile, dict[str, ArtifactRef]]:
    """Store one file of a component; how it is kept, and the members it adds. Raises as `put_component`."""
    if path.endswith(".safetensors"):
        with Input(path, source) as opened:
            layout = opened.layout()
            if can_split(path, layout):
                return split_file(store, path, opened, layout)
    media_type = _MEDIA_TYPES.get(PurePosixPath(path).suffix, "application/octet-stream")
    ref = store.put(source, kind=manifest.FILE_KIND, media_type=media_type)
    return ManifestFile(path, ref.digest, ref.size), {path: ref}


def _require_component(store: ArtifactStore, digest: str) -> None:
    try:
        ComponentManifest.parse(store.get(digest))
    except ArtifactCorrupt:
        raise InvalidParameter("base", digest, "use the digest of a component's weights") from None


def _require_path(path: str) -> None:
    try:
        manifest.check_path(path)
    except ArtifactCorrupt:
        raise InvalidParameter("path", path, "use a relative path within the component's folder") from None
    if len(path) > manifest.PATH_CHARACTERS:
        raise InvalidParameter("path", path, f"use at most {manifest.PATH_CHARACTERS} characters")
