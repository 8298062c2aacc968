"""A safetensors file as objects: its header, each tensor, and packs of the small ones.

Cut along tensors, two checkpoints share whatever they have in common, whichever of their files it lies in.
A tensor below `SMALL_BYTES` shares little and costs a request all the same, so small tensors are packed in
the order of the file. A pack is closed as soon as it holds `PACK_BYTES`: where every small tensor has
changed it costs what changed, and where one has, about a pack. Both figures decide what equal files are
stored as; with others, equal weights would get other digests.

The file is read once, in order, a bounded piece at a time. Hashing the whole file and storing the parts go
on beside reading: the file's digest is one thread's work, and small objects on their way to a remote store
wait for their round trips together.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

from mutoscope.platform.artifacts.input import Input
from mutoscope.platform.artifacts.manifest import (
    FILE_KIND,
    PATH_CHARACTERS,
    ManifestFile,
    Part,
    Split,
    StoredTensor,
    header_path,
    pack_path,
    tensor_path,
)
from mutoscope.platform.artifacts.reader import CHUNK_BYTES
from mutoscope.platform.artifacts.store import ArtifactStore
from mutoscope.platform.ids import sha256
from mutoscope.platform.refs import ArtifactRef
from mutoscope.platform.tensorfile import TensorLayout, TensorSpan

SMALL_BYTES = 64 << 10
PACK_BYTES = 1 << 20
PART_MEDIA_TYPE = "application/octet-stream"

_WHOLE_BYTES = 96 << 20
"""Up to this size a tensor passes through memory, so that a store that has it need not write it; a larger one
is streamed. The largest of FLUX.1 have 90 MiB."""

_HELD_BYTES = _WHOLE_BYTES
"""Bytes read and not yet hashed or not yet stored, at most."""

_THREADS = 8


def can_split(path: str, layout: TensorLayout) -> bool:
    """Whether there is something to split, and every tensor's name fits a row of the catalog."""
    return bool(layout.spans) and all(
        len(tensor_path(path, span.name)) <= PATH_CHARACTERS for span in layout.spans
    )


def split_file(
    store: ArtifactStore, path: str, source: Input, layout: TensorLayout
) -> tuple[ManifestFile, dict[str, ArtifactRef]]:
    """Store a file's parts.

    Returns:
        The file's entry of the manifest, and the objects by their member path.

    Raises:
        InvalidFolder: the file is cut while it is read.
        StoreUnwritable: the store refuses.
    """
    with _Splitter(store, path, source) as splitter:
        return splitter.run(layout)


class _Splitter:
    """The work on one file."""

    def __init__(self, store: ArtifactStore, path: str, source: Input) -> None:
        self._store, self._path, self._source = store, path, source
        self._hasher = hashlib.sha256()
        self._hashing = ThreadPoolExecutor(1, "file-digest")  # one thread: the file's bytes in their order
        self._putting = ThreadPoolExecutor(_THREADS, "tensor-put")
        self._in_flight: deque[tuple[Future[Any], int]] = deque()
        self._in_flight_bytes = 0  # each byte twice: on its way into the file's digest, and into the store
        self._stored: dict[str, Future[ArtifactRef]] = {}
        self._pack: list[bytes] = []
        self._pack_size = 0
        self._packs = 0

    def run(self, layout: TensorLayout) -> tuple[ManifestFile, dict[str, ArtifactRef]]:
        self._put(header_path(self._path), self._next(0, layout.header_size), {})
        packed = [self._take(span) for span in layout.spans]
        self._close_pack()
        while self._in_flight:
            self._settle()
        refs = {path: future.result() for path, future in self._stored.items()}
        split = Split(
            _part(refs[header_path(self._path)]),
            tuple(
                place or _tensor(span, refs[tensor_path(self._path, span.name)].digest)
                for span, place in zip(layout.spans, packed, strict=True)
            ),
            tuple(_part(refs[pack_path(self._path, index)]) for index in range(self._packs)),
        )
        return ManifestFile(self._path, self._hasher.hexdigest(), self._source.size, split), refs

    def _take(self, span: TensorSpan) -> StoredTensor | None:
        """Store one tensor, or begin to. Returns its place if that is in a pack."""
        if span.size < SMALL_BYTES:
            return self._add_to_pack(span)
        path, meta = tensor_path(self._path, span.name), {"dtype": span.dtype, "shape": list(span.shape)}
        if span.size <= _WHOLE_BYTES:
            self._put(path, self._next(span.start, span.size), meta)
        else:
            self._put_stream(path, span, meta)
        return None

    def _add_to_pack(self, span: TensorSpan) -> StoredTensor:
        data = self._next(span.start, span.size)
        place = _tensor(span, sha256(data), self._packs, self._pack_size)
        self._pack.append(data)
        self._pack_size += len(data)
        if self._pack_size >= PACK_BYTES:
            self._close_pack()
        return place

    def _close_pack(self) -> None:
        if self._pack:
            self._put(pack_path(self._path, self._packs), b"".join(self._pack), {"tensors": len(self._pack)})
            self._packs += 1
            self._pack, self._pack_size = [], 0

    def _next(self, start: int, length: int) -> bytes:
        """The bytes that come next in the file, which go into its digest. Waits while too many are held; what
        failed is raised here, soon after it failed."""
        while self._in_flight and self._in_flight_bytes + 2 * length > 2 * _HELD_BYTES:
            self._settle()
        data = self._source.read(start, length)
        self._track(self._hashing.submit(self._hasher.update, data), length)
        return data

    def _put(self, path: str, data: bytes, meta: dict[str, Any]) -> None:
        stored = self._putting.submit(
            self._store.put, data, kind=FILE_KIND, media_type=PART_MEDIA_TYPE, meta=meta
        )
        self._stored[path] = stored
        self._track(stored, len(data))

    def _put_stream(self, path: str, span: TensorSpan, meta: dict[str, Any]) -> None:
        chunks = (self._next(start, length) for start, length in _pieces(span))
        stored: Future[ArtifactRef] = Future()
        stored.set_result(self._store.put(chunks, kind=FILE_KIND, media_type=PART_MEDIA_TYPE, meta=meta))
        self._stored[path] = stored

    def _track(self, work: Future[Any], size: int) -> None:
        self._in_flight.append((work, size))
        self._in_flight_bytes += size

    def _settle(self) -> None:
        work, size = self._in_flight.popleft()
        self._in_flight_bytes -= size
        work.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for threads in (self._putting, self._hashing):
            threads.shutdown(cancel_futures=True)


def _pieces(span: TensorSpan) -> Iterator[tuple[int, int]]:
    end = span.start + span.size
    return ((start, min(CHUNK_BYTES, end - start)) for start in range(span.start, end, CHUNK_BYTES))


def _tensor(span: TensorSpan, digest: str, pack: int | None = None, offset: int = 0) -> StoredTensor:
    return StoredTensor(span.name, span.dtype, span.shape, digest, span.size, pack, offset)


def _part(ref: ArtifactRef) -> Part:
    return Part(ref.digest, ref.size)
