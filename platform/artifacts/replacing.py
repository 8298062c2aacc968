"""A component like another apart from some of its tensors: what a training makes of those it began with.

Files keep their names, their order of tensors and their metadata, and what did not change is shared with the
component it was made from. Nothing changed: the same component, to the last byte.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
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
from mutoscope.platform.tensorfile import TensorLayout, TensorSpan, build_header, read_layout


def put_replaced(
    store: ArtifactStore,
    like: str,
    tensors: Mapping[str, RawTensor],
    *,
    tied: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> StoredComponent:
    """Store a component's successor.

    Args:
        like: digest of the component's manifest.
        tensors: those that changed, by name. Types may differ from what they were; shapes may not.
        tied: further names of tensors that have several; a file may hold any of them.

    Raises:
        InvalidParameter: the component is an adapter, or has no tensor of such a name and shape.
        ArtifactMissing, ArtifactCorrupt: a part of it is gone or damaged.
        StoreUnwritable: the store refuses.
    """
    before = ComponentManifest.parse(store.get(like))
    if before.base is not None:
        raise InvalidParameter("like", like, "an adapter's tensors cannot be replaced: name whole weights")
    own = _Own(tensors, {other: name for name, others in tied.items() for other in others})
    listed: list[ManifestFile] = []
    stored: dict[str, ArtifactRef] = {}
    with tempfile.TemporaryDirectory() as folder:
        for file in before.files:
            successor, parts = _put_successor(store, file, own, Path(folder))
            listed.append(successor)
            stored |= parts
    if left := set(tensors) - own.placed:
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


@dataclass(slots=True)
class _Own:
    """The changed tensors, by any of their names.

    Attributes:
        aliases: further name to the one in `tensors`. placed: those that a file was found to hold.
    """

    tensors: Mapping[str, RawTensor]
    aliases: Mapping[str, str]
    placed: set[str] = field(default_factory=set)

    def __contains__(self, name: str) -> bool:
        return self.aliases.get(name, name) in self.tensors

    def take(self, span: TensorSpan) -> RawTensor | None:
        """What stands in a tensor's place; None where it stays."""
        if span.name not in self:
            return None
        name = self.aliases.get(span.name, span.name)
        new = self.tensors[name]
        if new.shape != span.shape:
            raise InvalidParameter(span.name, list(new.shape), f"the tensor has shape {list(span.shape)}")
        self.placed.add(name)
        return new


def _put_successor(
    store: ArtifactStore, file: ManifestFile, own: _Own, folder: Path
) -> tuple[ManifestFile, dict[str, ArtifactRef]]:
    """A file with its changed tensors replaced, and the members it adds."""
    if not file.path.endswith(".safetensors"):
        return file, {}
    if file.split is not None and not any(tensor.name in own for tensor in file.split.tensors):
        return file, {}
    before, after = folder / "before", folder / "after.safetensors"
    write_file(store, file, before)
    with before.open("rb") as source:
        layout = read_layout(lambda start, length: _read(source, start, length), file.size)
        if not any(span.name in own for span in layout.spans):
            return file, {}
        _write(after, source, layout, own)
    return put_file(store, file.path, after)


def _write(path: Path, source: BinaryIO, layout: TensorLayout, own: _Own) -> None:
    new = {span.name: own.take(span) for span in layout.spans}
    listed = [
        (span.name, span.dtype, span.shape, span.size)
        if (raw := new[span.name]) is None
        else (span.name, raw.dtype, raw.shape, len(raw.data))
        for span in layout.spans
    ]
    with path.open("wb") as target:
        target.write(build_header(listed, layout.metadata))
        for span in layout.spans:
            if (raw := new[span.name]) is not None:
                target.write(raw.data)
                continue
            source.seek(span.start)
            left = span.size
            while left and (chunk := source.read(min(left, CHUNK_BYTES))):
                left -= len(chunk)
                target.write(chunk)


def _read(source: BinaryIO, start: int, length: int) -> bytes:
    source.seek(start)
    return source.read(length)
