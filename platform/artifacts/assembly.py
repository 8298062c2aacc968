"""A component's file put together again from its parts, byte for byte."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from mutoscope.platform.artifacts.manifest import ManifestFile, Split
from mutoscope.platform.artifacts.reader import CHUNK_BYTES
from mutoscope.platform.artifacts.store import ArtifactStore
from mutoscope.platform.errors import ArtifactCorrupt, ArtifactMissing
from mutoscope.platform.ids import new_id


def write_file(store: ArtifactStore, file: ManifestFile, path: Path) -> None:
    """Write the verified bytes to `path`, which appears complete or not at all.

    Parts on the local disk are hashed once, as part of the file: that it has the right digest proves every
    one of them.

    Raises:
        ArtifactMissing, ArtifactCorrupt: a part is gone or damaged.
    """
    if file.split is None:
        store.download(file.digest, path)
        return
    temporary = path.with_name(f".{path.name}.{new_id()}")
    hasher = hashlib.sha256()
    try:
        with temporary.open("xb", buffering=0) as target:
            for chunk in _chunks(store, file.split):
                hasher.update(chunk)
                target.write(chunk)
        if hasher.hexdigest() != file.digest:
            raise _damage(store, file, file.split)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise


def _chunks(store: ArtifactStore, split: Split) -> Iterator[bytes]:
    yield from _object(store, split.header.digest)
    opened, pack = -1, b""
    for tensor in split.tensors:
        if tensor.pack is None:
            yield from _object(store, tensor.digest)
            continue
        if tensor.pack != opened:  # tensors of a pack may lie apart in the file; the packs come in order
            opened, pack = tensor.pack, store.get(split.packs[tensor.pack].digest)
        yield pack[tensor.offset : tensor.offset + tensor.size]


def _object(store: ArtifactStore, digest: str) -> Iterator[bytes]:
    try:
        path = store.local_path(digest)
    except ArtifactMissing:
        path = None  # a read through the store looks in the trash as well
    source = store.open_read(digest) if path is None else path.open("rb", buffering=0)
    with source:
        while chunk := source.read(CHUNK_BYTES):
            yield chunk


def _damage(store: ArtifactStore, file: ManifestFile, split: Split) -> ArtifactCorrupt:
    """The error that names the part at fault."""
    parts = [("header", split.header.digest)]
    parts += [(tensor.name, tensor.digest) for tensor in split.tensors if tensor.pack is None]
    for name, digest in parts:
        if store.verify(digest) != "sound":
            return ArtifactCorrupt(
                f"artifact {digest[:12]} ({file.path}, {name}) is damaged in the store: "
                "import the weights again to repair it"
            )
    return ArtifactCorrupt(
        f"the parts of {file.path} are sound, but do not make up the file that the manifest names "
        f"({file.digest[:12]}): import the weights again"
    )
