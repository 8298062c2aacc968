"""A component like another apart from some of its tensors: what a training makes of those it began with.

Files keep their names, their order of tensors and their metadata, and what did not change is shared with the
component it was made from. Nothing changed: the same component, to the last byte.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from mutoscope.platform.artifacts import manifest
from mutoscope.platform.artifacts.assembly import write_file
from mutoscope.platform.artifacts.components import StoredComponent, put_file
from mutoscope.platform.artifacts.manifest import ComponentManifest, ManifestFile, iter_members
from mutoscope.platform.artifacts.reader import CHUNK_BYTES
from mutoscope.platform.artifacts.store import ArtifactStore
from mutoscope.platform.artifacts.tensors import RawTensor
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.refs import ArtifactRef
from mutoscope.platform.tensorfile import TensorLayout, build_header, read_layout


def put_replaced(store: ArtifactStore, like: str, tensors: Mapping[str, RawTensor]) -> StoredComponent:
    """Store a component's successor.

    Args:
        like: digest of the component's manifest.
        tensors: those that changed, by name. Types may differ from what they were; shapes may not.

    Raises:
        InvalidParameter: the component is an adapter, or has no tensor of such a name and shape.
        ArtifactMissing, ArtifactCorrupt: a part of it is gone or damaged.
        StoreUnwritable: the store refuses.
    """
    before = ComponentManifest.parse(store.get(like))
    if before.base is not None:
        raise InvalidParameter("like", like, "an adapter's tensors cannot be replaced: name whole weights")
    left = dict(tensors)
    listed: list[ManifestFile] = []
    stored: dict[str, ArtifactRef] = {}
    with tempfile.TemporaryDirectory() as folder:
        for file in before.files:
            successor, parts = _put_successor(store, file, left, Path(folder))
            listed.append(successor)
            stored |= parts
    if left:
        raise InvalidParameter("tensor", min(left), f"{before.component} {like[:12]} has no such tensor")
    described = ComponentManifest(before.component, tuple(listed))
    ref = store.put(
        described.to_bytes(),
        kind=manifest.KIND,
        media_type=manifest.MEDIA_TYPE,
        meta={"component": described.component, "files": len(listed), "bytes": described.total_size},
    )
    members = {member.path: stored.get(member.path, member.digest) for member in iter_members(described)}
    return StoredComponent(ref, members)


def _put_successor(
    store: ArtifactStore, file: ManifestFile, left: dict[str, RawTensor], folder: Path
) -> tuple[ManifestFile, dict[str, ArtifactRef]]:
    """A file with those of its tensors replaced that are in `left`, out of which they are taken."""
    if not file.path.endswith(".safetensors"):
        return file, {}
    if file.split is not None and left.keys().isdisjoint(tensor.name for tensor in file.split.tensors):
        return file, {}
    before, after = folder / "before", folder / "after.safetensors"
    write_file(store, file, before)
    with before.open("rb") as source:
        layout = read_layout(lambda start, length: _read(source, start, length), file.size)
    own = {span.name: left.pop(span.name) for span in layout.spans if span.name in left}
    if not own:
        return file, {}
    _write(after, before, layout, own)
    return put_file(store, file.path, after)


def _write(path: Path, before: Path, layout: TensorLayout, own: Mapping[str, RawTensor]) -> None:
    listed = []
    for span in layout.spans:
        new = own.get(span.name)
        if new is not None and new.shape != span.shape:
            raise InvalidParameter(span.name, list(new.shape), f"the tensor has shape {list(span.shape)}")
        size = span.size if new is None else len(new.data)
        listed.append((span.name, span.dtype if new is None else new.dtype, span.shape, size))
    with before.open("rb") as source, path.open("wb") as target:
        target.write(build_header(listed, layout.metadata))
        for span in layout.spans:
            if span.name in own:
                target.write(own[span.name].data)
                continue
            source.seek(span.start)
            left = span.size
            while left and (chunk := source.read(min(left, CHUNK_BYTES))):
                left -= len(chunk)
                target.write(chunk)


def _read(source: BinaryIO, start: int, length: int) -> bytes:
    source.seek(start)
    return source.read(length)
