"""A store's listing, sorted by digest, in bounded memory however long it is.

Backends list in the order that is cheap for them. Records of a fixed length are sorted in runs; from the
second run on they go to temporary files, and the runs are merged.
"""

from __future__ import annotations

import heapq
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import IO, NamedTuple

_RECORD = struct.Struct(">32sQd")
_RUN_RECORDS = 500_000
_READ_RECORDS = 4_096


class Listed(NamedTuple):
    """An object as listed: bytes, and when it was written, in seconds since the epoch."""

    digest: str
    size: int
    modified: float


class Inventory:
    """Objects sorted by digest. Use as a context; iterate once.

    Args:
        listed: in any order; read to its end here and now.
        watch: told how many have been listed so far.
        run_records: records sorted in memory at a time, 48 bytes each and about twice that while sorting.
    """

    def __init__(
        self,
        listed: Iterable[Listed],
        watch: Callable[[int], None] = lambda count: None,
        run_records: int = _RUN_RECORDS,
    ) -> None:
        self.count = 0
        self.bytes = 0
        self._stack = ExitStack()
        self._runs: list[IO[bytes]] = []
        batch: list[bytes] = []
        for item in listed:
            batch.append(_RECORD.pack(bytes.fromhex(item.digest), item.size, item.modified))
            self.count += 1
            self.bytes += item.size
            if len(batch) == run_records:
                self._runs.append(self._spill(batch))
                batch = []
                watch(self.count)
        self._last = sorted(batch)
        watch(self.count)

    def __enter__(self) -> Inventory:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def __iter__(self) -> Iterator[Listed]:
        for record in heapq.merge(*(map(_records, self._runs)), self._last):
            digest, size, modified = _RECORD.unpack(record)
            yield Listed(digest.hex(), size, modified)

    def _spill(self, batch: list[bytes]) -> IO[bytes]:
        file = self._stack.enter_context(tempfile.TemporaryFile(prefix="mutoscope-fsck-"))  # noqa: SIM115 # the stack closes it
        file.writelines(sorted(batch))
        file.seek(0)
        return file


def _records(file: IO[bytes]) -> Iterator[bytes]:
    while chunk := file.read(_READ_RECORDS * _RECORD.size):
        for start in range(0, len(chunk), _RECORD.size):
            yield chunk[start : start + _RECORD.size]
