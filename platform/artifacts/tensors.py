"""A component's tensors by name, each read only when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np

from mutoscope.platform.artifacts.manifest import ComponentManifest, ManifestFile, Part, StoredTensor
from mutoscope.platform.artifacts.reader import CHUNK_BYTES, corrupt
from mutoscope.platform.artifacts.store import ArtifactStore
from mutoscope.platform.errors import ArtifactCorrupt, InvalidParameter
from mutoscope.platform.ids import sha256
from mutoscope.platform.tensorfile import NotSafetensors, TensorLayout, TensorSpan, read_layout

T = TypeVar("T")

NUMPY_TYPES: Mapping[str, Any] = {
    "BOOL": np.bool_,
    "U8": np.uint8,
    "I8": np.int8,
    "U16": np.dtype("<u2"),
    "I16": np.dtype("<i2"),
    "F16": np.dtype("<f2"),
    "U32": np.dtype("<u4"),
    "I32": np.dtype("<i4"),
    "F32": np.dtype("<f4"),
    "U64": np.dtype("<u8"),
    "I64": np.dtype("<i8"),
    "F64": np.dtype("<f8"),
    "C64": np.dtype("<c8"),
}


@dataclass(frozen=True, slots=True)
class RawTensor:
    """A tensor's verified bytes, little-endian and in row-major order; `dtype` as safetensors spells it."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


class Tensors(Mapping[str, T], Generic[T]):
    """Tensors by name. A look-up reads and verifies that tensor's bytes, and none of another's; nothing is
    kept. Raises ArtifactMissing or ArtifactCorrupt from the look-up.
    """

    def __init__(
        self, readers: Mapping[str, Callable[[], RawTensor]], convert: Callable[[RawTensor], T]
    ) -> None:
        self._readers, self._convert = readers, convert

    def __getitem__(self, name: str) -> T:
        return self._convert(self._readers[name]())

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)


def open_tensors(store: ArtifactStore, manifest: ComponentManifest) -> Tensors[np.ndarray[Any, Any]]:
    """A component's tensors as read-only arrays, those of its base included where it does not replace them.

    Raises:
        InvalidParameter: two files of the component hold a tensor of that name. From a look-up: NumPy has no
            such type (BF16 and the 8-bit floats).
        ArtifactMissing, ArtifactCorrupt: the base's manifest is gone or damaged.
    """
    return Tensors(readers(store, manifest), to_numpy)


def to_numpy(raw: RawTensor) -> np.ndarray[Any, Any]:
    """The tensor as a read-only array. Raises InvalidParameter for a type NumPy lacks."""
    if raw.dtype not in NUMPY_TYPES:
        raise InvalidParameter("dtype", raw.dtype, f"open it as torch, or use {', '.join(NUMPY_TYPES)}")
    # Not frombuffer: it refuses an empty buffer, and a tensor may have no elements.
    return np.ndarray(raw.shape, NUMPY_TYPES[raw.dtype], raw.data)


def readers(store: ArtifactStore, manifest: ComponentManifest) -> dict[str, Callable[[], RawTensor]]:
    """What reads each tensor, by name; see `open_tensors`."""
    base = {} if manifest.base is None else readers(store, ComponentManifest.parse(store.get(manifest.base)))
    own: dict[str, Callable[[], RawTensor]] = {}
    for file in manifest.files:
        found = _readers(store, file)
        if not own.keys().isdisjoint(found):
            raise InvalidParameter(
                "tensor",
                min(own.keys() & found.keys()),
                f"two files of {manifest.component} hold it: open a component whose files do not overlap",
            )
        own |= found
    return base | own


def shapes_of(store: ArtifactStore, manifest: ComponentManifest) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor of a component by name, its base's included; no tensor is read.

    Raises:
        ArtifactMissing, ArtifactCorrupt: the base's manifest or a file is gone or damaged.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    if manifest.base is not None:
        shapes |= shapes_of(store, ComponentManifest.parse(store.get(manifest.base)))
    for file in manifest.files:
        if file.split is not None:
            shapes |= {tensor.name: tensor.shape for tensor in file.split.tensors}
        elif file.path.endswith(".safetensors"):
            shapes |= {span.name: span.shape for span in _layout(store, file).spans}
    return shapes


def _readers(store: ArtifactStore, file: ManifestFile) -> dict[str, Callable[[], RawTensor]]:
    if file.split is not None:
        packs = file.split.packs
        return {tensor.name: partial(_read, store, tensor, packs) for tensor in file.split.tensors}
    if not file.path.endswith(".safetensors"):
        return {}
    return {span.name: partial(_read_whole, store, file, span) for span in _layout(store, file).spans}


def _layout(store: ArtifactStore, file: ManifestFile) -> TensorLayout:
    try:
        return read_layout(lambda start, length: store.read_range(file.digest, start, length), file.size)
    except NotSafetensors as reason:
        raise ArtifactCorrupt(f"{file.path} {reason}: import the weights again") from None


def _read(store: ArtifactStore, tensor: StoredTensor, packs: tuple[Part, ...]) -> RawTensor:
    if tensor.pack is None:
        return RawTensor(tensor.dtype, tensor.shape, store.get(tensor.digest))
    pack = packs[tensor.pack]
    data = store.read_range(pack.digest, tensor.offset, tensor.size)
    found = sha256(data)
    if found != tensor.digest:
        raise corrupt(pack.digest, found)
    return RawTensor(tensor.dtype, tensor.shape, data)


def _read_whole(store: ArtifactStore, file: ManifestFile, span: TensorSpan) -> RawTensor:
    """From a file stored as one object, which only reading all of it can verify."""
    with store.open_read(file.digest) as stream:
        left = span.start
        while left and (chunk := stream.read(min(left, CHUNK_BYTES))):
            left -= len(chunk)
        data = stream.read(span.size)
        while stream.read(CHUNK_BYTES):
            pass
    return RawTensor(span.dtype, span.shape, data)
