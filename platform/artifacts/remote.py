"""Objects on any file system fsspec knows: ``memory://``, ``s3://``, ``gs://``, ...

The layout below the root is that of the local folder: ``objects/3f/3fa9c1…``.

A name is known only after the last byte is hashed, so bytes are first spooled to the local disk (small ones
to memory). From there they go to the key in one step where the medium shows only finished uploads; elsewhere
to ``tmp/`` and by a move to the key.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self, cast

import fsspec

from mutoscope.platform.artifacts.backend import Buffer
from mutoscope.platform.errors import InvalidInput
from mutoscope.platform.ids import new_id

_ATOMIC_UPLOADS = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"})
"""Protocols on which an object appears when its upload completes, and not before."""

_SPOOL_BYTES = 4 << 20
_COPY_BYTES = 1 << 20


class FsspecBackend:
    """A store at an fsspec URL."""

    def __init__(self, url: str) -> None:
        try:
            self._fs, path = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise InvalidInput(
                f"store_url={url!r} cannot be opened: use file:///folder or a URL fsspec knows ({error})"
            ) from None
        self.root = str(path).rstrip("/")
        protocols = self._fs.protocol if isinstance(self._fs.protocol, tuple | list) else (self._fs.protocol,)
        self.atomic_uploads = not _ATOMIC_UPLOADS.isdisjoint(protocols)

    def stage(self) -> StagedUpload:
        return StagedUpload(self)

    def holds(self, key: str, data: Buffer) -> bool:
        """Never: reading a remote object back costs what writing it costs, and writing repairs."""
        return False

    def open(self, key: str) -> BinaryIO:
        return cast(BinaryIO, self._fs.open(self._name(key), "rb"))

    def read(self, key: str) -> bytes:
        return bytes(self._fs.cat_file(self._name(key)))

    def size(self, key: str) -> int | None:
        try:
            return int(self._fs.info(self._name(key))["size"])
        except FileNotFoundError:
            return None

    def objects(self) -> Iterator[str]:
        prefix = f"{self.root}/objects/"
        for name in self._fs.find(prefix):
            yield str(name).removeprefix(prefix)

    def url(self, key: str) -> str:
        return str(self._fs.unstrip_protocol(self._name(key)))

    def path(self, key: str) -> Path | None:
        return None

    def probe(self) -> None:
        name = f"{self.root}/tmp/{new_id()}"
        self._fs.makedirs(f"{self.root}/tmp", exist_ok=True)
        self._fs.pipe_file(name, b"mutoscope")
        self._fs.rm_file(name)

    def upload(self, source: BinaryIO, key: str) -> None:
        """Copy `source` to the key, visible only when complete."""
        target = self._name(key)
        if self.atomic_uploads:
            self._copy(source, target)
            return
        temporary = f"{self.root}/tmp/{new_id()}"
        try:
            self._copy(source, temporary)
            self._fs.makedirs(self._fs._parent(target), exist_ok=True)
            self._fs.mv(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                self._fs.rm_file(temporary)
            raise

    def _copy(self, source: BinaryIO, target: str) -> None:
        if not self.atomic_uploads:
            self._fs.makedirs(self._fs._parent(target), exist_ok=True)
        with self._fs.open(target, "wb") as file:
            try:
                while chunk := source.read(_COPY_BYTES):
                    file.write(chunk)
            except BaseException:
                with contextlib.suppress(Exception):
                    file.discard()
                raise

    def _name(self, key: str) -> str:
        return f"{self.root}/objects/{key}"


class StagedUpload:
    """Bytes waiting on the local disk for their name."""

    def __init__(self, backend: FsspecBackend) -> None:
        self._backend = backend
        self._spool: Any = tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES, prefix="mutoscope-")  # noqa: SIM115  # closed by __exit__

    def write(self, chunk: Buffer) -> None:
        self._spool.write(chunk)

    def commit(self, key: str) -> None:
        self._spool.seek(0)
        self._backend.upload(self._spool, key)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._spool.close()
