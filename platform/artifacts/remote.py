"""Objects on any file system fsspec knows: ``memory://``, ``gs://``, ``sftp://``, ...

A name is known only after the last byte is hashed, so streams are first spooled to the local disk (small ones
to memory); a file is hashed where it lies. From there they go to their name in one step where the medium
shows only finished uploads; elsewhere to ``tmp/`` and by a move to the name.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

import fsspec
from fsspec.implementations.memory import MemoryFile

from mutoscope.platform import faults
from mutoscope.platform.artifacts import layout
from mutoscope.platform.artifacts.backend import Buffer, Entry, Facts, discard_stale
from mutoscope.platform.artifacts.full_reads import read_fully
from mutoscope.platform.artifacts.spool import Spooled, changed
from mutoscope.platform.artifacts.urls import scrubbed
from mutoscope.platform.errors import InvalidInput
from mutoscope.platform.ids import new_id

_ATOMIC_UPLOADS = frozenset({"gs", "gcs", "abfs", "abfss", "az"})
"""Protocols on which an object appears when its upload completes, and not before."""

_MODIFIED = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")
"""Where file systems keep the time of the last write, best first."""

_COPY_BYTES = 1 << 20


class FsspecBackend:
    """A store at an fsspec URL."""

    def __init__(self, url: str) -> None:
        try:
            self._fs, path = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise InvalidInput(
                f"store_url={scrubbed(url)!r} cannot be opened ({error}): "
                "use file:///folder, s3://bucket or a URL that fsspec knows"
            ) from None
        self.root = str(path).rstrip("/")
        # What was listed a moment ago may have been collected by another host.
        self._fs.use_listings_cache = False
        protocols = self._fs.protocol if isinstance(self._fs.protocol, tuple | list) else (self._fs.protocol,)
        self.atomic_uploads = not _ATOMIC_UPLOADS.isdisjoint(protocols)

    def matches(self, name: str, data: Buffer, facts: Facts) -> bool | None:
        return self.holds(name, io.BytesIO(data), facts)

    def write(self, name: str, data: Buffer, facts: Facts, *, replace: bool) -> None:
        self.upload(name, io.BytesIO(data), facts, replace=replace)

    def stage(self, origin: BinaryIO | None = None) -> Spooled:
        # An upload that appears by itself cannot be called off when the origin turns out to have changed.
        return Spooled(self, None if self.atomic_uploads else origin)

    def holds(self, name: str, source: BinaryIO, facts: Facts) -> bool | None:
        """Reads the object back, which costs what writing it costs, and keeps what is damaged as evidence."""
        entry = self.entry(name)
        if entry is None:
            return None
        if entry.size != source.seek(0, io.SEEK_END):
            return False
        source.seek(0)
        with contextlib.suppress(FileNotFoundError), self.open(name)[0] as stored:
            while chunk := source.read(_COPY_BYTES):
                if read_fully(stored, len(chunk)) != chunk:
                    return False
            return True
        return None

    def upload(self, name: str, source: BinaryIO, facts: Facts, *, replace: bool) -> None:
        """Copy `source` to the name, visible only when complete."""
        source.seek(0)
        hasher = hashlib.sha256()
        with self._arriving(name) as temporary, self._fs.open(temporary, "wb") as file:
            try:
                while chunk := source.read(_COPY_BYTES):
                    file.write(chunk)
                    hasher.update(chunk)
                    faults.hit("store.mid_write")
                if facts.digest and hasher.hexdigest() != facts.digest:
                    raise changed(facts.digest)
            except BaseException:
                with contextlib.suppress(Exception):
                    file.discard()
                raise
        faults.hit("store.after_commit")

    def open(self, name: str) -> tuple[BinaryIO, int]:
        file = self._fs.open(self._file(name), "rb")
        if isinstance(file, MemoryFile):  # the object itself, with one cursor for all its readers
            file = io.BytesIO(file.getvalue())
        size = file.seek(0, io.SEEK_END)
        file.seek(0)
        return cast(BinaryIO, file), size

    def read(self, name: str) -> bytes:
        return bytes(self._fs.cat_file(self._file(name)))

    def read_range(self, name: str, start: int, length: int) -> bytes:
        return bytes(self._fs.cat_file(self._file(name), start=start, end=start + length))

    def entry(self, name: str) -> Entry | None:
        try:
            info = self._fs.info(self._file(name))
        except FileNotFoundError:
            return None
        return self._entry(name, info)

    def entries(self, prefix: str) -> Iterator[Entry]:
        folders = [prefix]
        while folders:
            folder = folders.pop()
            try:
                found = self._fs.ls(self._file(folder), detail=True)
            except FileNotFoundError:
                continue
            for info in found:
                name = f"{folder}/{str(info['name']).rstrip('/').rpartition('/')[2]}"
                if info["type"] == "directory":
                    folders.append(name)
                else:
                    with contextlib.suppress(FileNotFoundError):  # moved away meanwhile
                        yield self._entry(name, info)

    def copy(self, source: str, target: str) -> None:
        with self._arriving(target) as temporary:
            self._fs.cp_file(self._file(source), temporary)

    def move(self, source: str, target: str) -> None:
        # Copied, not renamed: the copy's time says when it arrived.
        self.copy(source, target)
        faults.hit("store.move.copied")
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(self._file(source))
        faults.hit("store.moved")

    def remove(self, name: str) -> bool:
        try:
            self._fs.rm_file(self._file(name))
        except FileNotFoundError:
            return False
        return True

    def discard_unfinished(self, before: float) -> int:
        return discard_stale(self, before)

    def url(self, name: str) -> str:
        return scrubbed(str(self._fs.unstrip_protocol(self._file(name))))

    def presigned_url(self, name: str, seconds: int) -> str | None:
        return None

    def path(self, name: str) -> Path | None:
        return None

    def probe(self) -> None:
        name = self._file(f"{layout.TMP}/{new_id()}")
        self._fs.makedirs(self._fs._parent(name), exist_ok=True)
        self._fs.pipe_file(name, b"mutoscope")
        self._fs.rm_file(name)

    def _entry(self, name: str, info: Mapping[str, Any]) -> Entry:
        when = next((info[key] for key in _MODIFIED if info.get(key) is not None), None)
        if when is None:
            when = self._fs.modified(info["name"])
        return Entry(name, int(info["size"]), float(when.timestamp() if hasattr(when, "timestamp") else when))

    @contextlib.contextmanager
    def _arriving(self, name: str) -> Iterator[str]:
        """The file to write for `name`: it becomes visible under that name when the block is left."""
        target = self._file(name)
        if self.atomic_uploads:
            faults.hit("store.before_commit")
            yield target
            return
        temporary = self._file(f"{layout.TMP}/{new_id()}")
        try:
            self._fs.makedirs(self._fs._parent(temporary), exist_ok=True)
            yield temporary
            self._fs.makedirs(self._fs._parent(target), exist_ok=True)
            faults.hit("store.before_commit")
            self._fs.mv(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                self._fs.rm_file(temporary)
            raise

    def _file(self, name: str) -> str:
        return f"{self.root}/{name}"
