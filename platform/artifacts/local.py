"""Objects as files in a folder.

This backend calls the operating system directly: fsspec's local file system stages files in the system's
temporary folder, from where a move may cross file systems and is then no longer atomic.

Layout below the root, readable with any tool (``sha256sum objects/3f/3fa9…`` prints the file's own name)::

    README.txt              says what this folder is
    objects/3f/3fa9c1…      one file per artifact, named by the SHA-256 of its bytes, mode 0444
    tmp/                    writes under way; anything in it may be deleted while no writer runs
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, cast

from mutoscope.platform.artifacts.backend import Buffer
from mutoscope.platform.ids import new_id

_README = """\
A Mutoscope artifact store.

objects/ab/ab12...  one file per artifact, named by the SHA-256 of its bytes: `sha256sum FILE` prints
                    its name. Files never change; what each one is (image, video, weights, ...) stands
                    in the catalog, and `file FILE` tells the format.
tmp/                writes under way. Leftovers of a killed writer may be deleted while nothing is writing.
"""
_COMPARE_BYTES = 1 << 20


class LocalBackend:
    """A store in a local folder.

    Args:
        durable: fsync file and folder before an object becomes visible, so that it survives a power cut as
            well as a killed process. Costs milliseconds a put; without it a power cut may leave an object
            empty or short, which reads notice and a re-put repairs.
    """

    def __init__(self, root: Path, *, durable: bool = False) -> None:
        self.root = str(root)
        self.durable = durable
        self._objects = f"{self.root}/objects"
        self._tmp = f"{self.root}/tmp"

    def stage(self) -> StagedFile:
        path = f"{self._tmp}/{new_id()}"
        try:
            return StagedFile(self, path)
        except FileNotFoundError:
            self._create()
            return StagedFile(self, path)

    def holds(self, key: str, data: Buffer) -> bool:
        """Compares the stored bytes themselves: at memory speed, several times faster than hashing them
        again."""
        try:
            descriptor = os.open(self._name(key), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        view = memoryview(data).cast("B")
        try:
            if os.fstat(descriptor).st_size != len(view):
                return False
            for start in range(0, len(view), _COMPARE_BYTES):
                # Copied out: bytes compare as memory, memoryviews item by item, slower than hashing.
                expected = bytes(view[start : start + _COMPARE_BYTES])
                if os.read(descriptor, len(expected)) != expected:
                    return False
            return True
        except OSError:
            return False
        finally:
            os.close(descriptor)

    def open(self, key: str) -> BinaryIO:
        return cast(BinaryIO, open(self._name(key), "rb", buffering=0))  # the reader above has its own buffer

    def read(self, key: str) -> bytes:
        with open(self._name(key), "rb", buffering=0) as file:
            return file.readall()

    def size(self, key: str) -> int | None:
        try:
            return os.stat(self._name(key)).st_size
        except FileNotFoundError:
            return None

    def objects(self) -> Iterator[str]:
        with contextlib.suppress(FileNotFoundError), os.scandir(self._objects) as shards:
            for shard in shards:
                with os.scandir(shard.path) as files:
                    yield from (f"{shard.name}/{file.name}" for file in files)

    def url(self, key: str) -> str:
        return Path(self._name(key)).as_uri()

    def path(self, key: str) -> Path | None:
        return Path(self._name(key))

    def probe(self) -> None:
        with self.stage() as staged:
            staged.write(b"mutoscope")

    def _name(self, key: str) -> str:
        return f"{self._objects}/{key}"

    def _create(self) -> None:
        for folder in (self._objects, self._tmp):
            os.makedirs(folder, exist_ok=True)
        with contextlib.suppress(FileExistsError), open(f"{self.root}/README.txt", "x") as file:
            file.write(_README)


class StagedFile:
    """A file in ``tmp/``, on the same file system as its destination so that the rename is atomic."""

    def __init__(self, backend: LocalBackend, path: str) -> None:
        self._backend = backend
        self._path: str | None = path
        # Read-only from birth: caches hard-link to objects, and an edit there must not reach the store.
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)

    def write(self, chunk: Buffer) -> None:
        written = os.write(self._descriptor, chunk)
        if written < len(chunk):
            view = memoryview(chunk)
            while written < len(view):
                written += os.write(self._descriptor, view[written:])

    def commit(self, key: str) -> None:
        assert self._path is not None, "committed twice"
        if self._backend.durable:
            os.fsync(self._descriptor)
        # Closed before the rename: network file systems report a full disk only here.
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)
        target = self._backend._name(key)
        try:
            os.replace(self._path, target)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.replace(self._path, target)
        self._path = None
        if self._backend.durable:
            _sync_folder(os.path.dirname(target))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        if self._path is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
            self._path = None


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
