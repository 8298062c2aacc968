"""A stream that proves what it hands out."""

from __future__ import annotations

import hashlib
import io
from typing import BinaryIO

from mutoscope.platform.artifacts.backend import Backend
from mutoscope.platform.errors import ArtifactCorrupt, ArtifactMissing

CHUNK_BYTES = 1 << 20
"""Bytes held in memory at a time by a streaming put or read."""


def corrupt(digest: str, found: str) -> ArtifactCorrupt:
    """The error for bytes that are not what their name says."""
    return ArtifactCorrupt(
        f"artifact {digest[:12]} is damaged in the store (its bytes hash to {found[:12]}): "
        "set it aside with `mutoscope fsck --repair`, then replay the run that made it, or put it again"
    )


def open_verified(backend: Backend, name: str, digest: str) -> BinaryIO:
    """A buffered `VerifyingReader` over an object. Raises FileNotFoundError."""
    raw, size = backend.open(name)
    return io.BufferedReader(VerifyingReader(raw, digest, size), CHUNK_BYTES)


class VerifyingReader(io.RawIOBase):
    """Reads an object and hashes along; the last byte is not handed out before the whole digest agrees.

    Not seekable: a verified read is a whole read. Raises ArtifactCorrupt from the read that reaches the end.
    """

    def __init__(self, source: BinaryIO, digest: str, size: int) -> None:
        super().__init__()
        self._source, self._digest, self._left = source, digest, size
        self._hasher = hashlib.sha256()
        self._verified = False
        if size == 0:
            try:
                self._verify()
            except ArtifactCorrupt:
                source.close()
                raise

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        target = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        if self._verified or not len(target):
            return 0
        try:
            chunk = self._source.read(min(len(target), self._left))
        except FileNotFoundError:  # a remote object is read in many requests
            raise ArtifactMissing(
                f"artifact {self._digest[:12]} was collected while it was read: read it again"
            ) from None
        self._hasher.update(chunk)
        self._left -= len(chunk)
        if not chunk or self._left == 0:
            self._verify()
        target[: len(chunk)] = chunk
        return len(chunk)

    def close(self) -> None:
        if not self.closed:
            self._source.close()
        super().close()

    def _verify(self) -> None:
        found = self._hasher.hexdigest()
        if found != self._digest:
            raise corrupt(self._digest, found)
        self._verified = True
