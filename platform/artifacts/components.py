"""Storing a component: its files as blobs, and the manifest that names them together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from mutoscope.platform.artifacts import manifest
from mutoscope.platform.artifacts.manifest import ComponentManifest, ManifestFile
from mutoscope.platform.artifacts.store import ArtifactStore
from mutoscope.platform.refs import ArtifactRef

_MEDIA_TYPES = {
    ".json": "application/json",
    ".safetensors": "application/vnd.safetensors",
    ".txt": "text/plain",
}


class StoredComponent(NamedTuple):
    """The manifest, which a weight version points to, and the files by their path in the component."""

    manifest: ArtifactRef
    files: dict[str, ArtifactRef]


def put_component(store: ArtifactStore, component: str, files: Mapping[str, bytes | Path]) -> StoredComponent:
    """Store one component. The manifest goes last, so whoever finds it finds its files.

    Args:
        files: path within the component to the bytes, or to the file that holds them.

    Raises:
        StoreUnwritable: the store refuses.
        FileNotFoundError: a file is gone.
    """
    stored = {
        path: store.put(source, kind=manifest.FILE_KIND, media_type=_media_type(path))
        for path, source in files.items()
    }
    listed = ComponentManifest(
        component, tuple(ManifestFile(path, ref.digest, ref.size) for path, ref in stored.items())
    )
    ref = store.put(
        listed.to_bytes(),
        kind=manifest.KIND,
        media_type=manifest.MEDIA_TYPE,
        meta={"component": component, "files": len(listed.files), "bytes": listed.total_size},
    )
    return StoredComponent(ref, stored)


def _media_type(path: str) -> str:
    return _MEDIA_TYPES.get(PurePosixPath(path).suffix, "application/octet-stream")
