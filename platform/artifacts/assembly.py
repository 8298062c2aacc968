"""A component's file put together again from its parts, byte for byte."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from mutoscope.platform.artifacts.appearing import appearing
from mutoscope.platform.artifacts.manifest import ComponentManifest, ManifestFile, Split
from mutoscope.platform.artifacts.reader import CHUNK_BYTES
from mutoscope.platform.artifacts.store import ArtifactStore
from mutoscope.platform.errors import ArtifactCorrupt, ArtifactMissing


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor's bytes lie in a file on the local disk."""

    path: Path
    start: int


def tensor_places(manifest: ComponentManifest, folder: Path) -> dict[str, Place]:
    """By digest, where the tensors of a component lie that was put together in `folder`."""
    places: dict[str, Place] = {}
    for file in manifest.files:
        if file.split is not None:
            start = file.split.header.size
            for tensor in file.split.tensors:
                places[tensor.digest] = Place(folder / file.path, start)
                start += tensor.size
    return places


def write_file(
    store: ArtifactStore, file: ManifestFile, path: Path, nearby: Mapping[str, Place] = MappingProxyType({})
) -> None:
    """Write the verified bytes to `path`, which appears complete or not at all.

    Parts on the local disk are hashed once, as part of the file: that it has the right digest proves every
    one of them.

    Args:
        nearby: tensors, by digest, that need not be fetched. What lies there is believed only as far as the
            file's digest bears it out.

    Raises:
        ArtifactMissing, ArtifactCorrupt: a part is gone or damaged.
    """
    if file.split is None:
        store.download(file.digest, path)
        return
    with appearing(path) as temporary:
        found = _write(temporary, _chunks(store, file.split, nearby))
        if found != file.digest and nearby:
            found = _write(temporary, _chunks(store, file.split, {}))
        if found != file.digest:
            raise _damage(store, file, file.split)


def _write(path: Path, chunks: Iterator[bytes]) -> str:
    """Write, and return the SHA-256 of what was written."""
    hasher = hashlib.sha256()
    with path.open("wb", buffering=0) as file:
        for chunk in chunks:
            hasher.update(chunk)
            file.write(chunk)
    return hasher.hexdigest()


def _chunks(store: ArtifactStore, split: Split, nearby: Mapping[str, Place]) -> Iterator[bytes]:
    yield from _object(store, split.header.digest)
    opened, pack = -1, b""
    for tensor in split.tensors:
        if (place := nearby.get(tensor.digest)) is not None:
            yield from _range(place, tensor.size)
        elif tensor.pack is None:
            yield from _object(store, tensor.digest)
        else:
            if tensor.pack != opened:  # a pack's tensors may lie apart in the file; the packs come in order
                opened, pack = tensor.pack, store.get(split.packs[tensor.pack].digest)
            yield pack[tensor.offset : tensor.offset + tensor.size]


def _range(place: Place, size: int) -> Iterator[bytes]:
    """The bytes that lie there, or fewer where that file was removed or cut; the digest will tell."""
    with contextlib.suppress(OSError), place.path.open("rb", buffering=0) as file:
        file.seek(place.start)
        while size and (chunk := file.read(min(size, CHUNK_BYTES))):
            size -= len(chunk)
            yield chunk


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
