"""Bytes waiting on the local disk for their name, for media that cannot rename what is being written."""

from __future__ import annotations

import tempfile
from types import TracebackType
from typing import Any, BinaryIO, Protocol, Self

from mutoscope.platform import faults
from mutoscope.platform.artifacts.backend import Buffer, Facts
from mutoscope.platform.errors import StoreUnwritable

_MEMORY_BYTES = 4 << 20
"""Up to this size nothing touches the disk."""


class Uploads(Protocol):
    """What a backend offers to those who have the bytes in a file."""

    def holds(self, name: str, source: BinaryIO, facts: Facts) -> bool | None: ...
    def upload(self, name: str, source: BinaryIO, facts: Facts, *, replace: bool) -> None: ...


class Spooled:
    """A `Staged` in a temporary file; or, given the `origin` of the chunks, without any copy of its own."""

    def __init__(self, backend: Uploads, origin: BinaryIO | None) -> None:
        self._backend, self._origin = backend, origin
        self._file: Any = origin or _spool()

    def write(self, chunk: Buffer) -> None:
        if self._origin is None:
            self._file.write(chunk)
            faults.hit("store.mid_write")

    def matches(self, name: str, facts: Facts) -> bool | None:
        return self._backend.holds(name, self._file, facts)

    def commit(self, name: str, facts: Facts, *, replace: bool) -> None:
        self._backend.upload(name, self._file, facts, replace=replace)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._origin is None:
            self._file.close()


def changed(digest: str) -> StoreUnwritable:
    """The error for an origin that, when it was uploaded, was no longer what had been hashed."""
    return StoreUnwritable(f"the source of {digest[:12]} changed while it was stored: put it again")


def _spool() -> Any:
    return tempfile.SpooledTemporaryFile(max_size=_MEMORY_BYTES, prefix="mutoscope-")
