"""Objects as files in a folder.

This backend calls the operating system directly: fsspec's local file system stages files in the system's
temporary folder, from where a move may cross file systems and is then no longer atomic.

Below the root lies what `layout` says, readable with any tool (``sha256sum objects/3f/3fa9…`` prints the
file's own name). Objects have mode 0444.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, cast

from mutoscope.platform import faults
from mutoscope.platform.artifacts import layout
from mutoscope.platform.artifacts.backend import Buffer, Entry, Facts, discard_stale
from mutoscope.platform.artifacts.full_reads import pread_fully
from mutoscope.platform.artifacts.spool import changed
from mutoscope.platform.ids import new_id

_COMPARE_BYTES = 1 << 20
_COPY_BYTES = 16 << 20
_NO_COPYING = frozenset({errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM})
"""How a system, or a pair of file systems, says that it cannot copy between two files by itself."""


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
        self._tmp = f"{self.root}/{layout.TMP}"

    def matches(self, name: str, data: Buffer, facts: Facts) -> bool | None:
        """Compares the stored bytes themselves: at memory speed, several times faster than hashing them
        again."""
        path = self._file(name)
        if not os.access(path, os.F_OK):  # most often so; an exception would cost more than the question
            return None
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        view = memoryview(data).cast("B")
        try:
            if os.fstat(descriptor).st_size != len(view):
                return False
            for start in range(0, len(view), _COMPARE_BYTES):
                # Copied out: bytes compare as memory, memoryviews item by item, slower than hashing.
                expected = bytes(view[start : start + _COMPARE_BYTES])
                if pread_fully(descriptor, start, len(expected)) != expected:
                    return False
            return True
        except OSError:  # a bad block
            return False
        finally:
            os.close(descriptor)

    def write(self, name: str, data: Buffer, facts: Facts, *, replace: bool) -> None:
        with self._stage() as staged:
            staged.write(data)
            staged.commit(name, facts, replace=replace)

    def stage(self, origin: BinaryIO | None = None) -> StagedFile | StagedCopy:
        return self._stage() if origin is None else StagedCopy(self, origin)

    def _stage(self) -> StagedFile:
        path = f"{self._tmp}/{new_id()}"
        try:
            return StagedFile(self, path)
        except FileNotFoundError:
            self._create()
            return StagedFile(self, path)

    def open(self, name: str) -> tuple[BinaryIO, int]:
        file = cast(BinaryIO, open(self._file(name), "rb", buffering=0))  # noqa: SIM115  # the caller closes it
        return file, os.fstat(file.fileno()).st_size

    def read(self, name: str) -> bytes:
        with open(self._file(name), "rb", buffering=0) as file:
            return file.readall()

    def read_range(self, name: str, start: int, length: int) -> bytes:
        with open(self._file(name), "rb", buffering=0) as file:
            return pread_fully(file.fileno(), start, length)

    def entry(self, name: str) -> Entry | None:
        try:
            status = os.stat(self._file(name))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Entry(name, status.st_size, status.st_mtime)

    def entries(self, prefix: str) -> Iterator[Entry]:
        folders = [prefix]
        while folders:
            folder = folders.pop()
            with contextlib.suppress(FileNotFoundError), os.scandir(self._file(folder)) as found:
                for item in found:
                    name = f"{folder}/{item.name}"
                    if item.is_dir(follow_symlinks=False):
                        folders.append(name)
                        continue
                    with contextlib.suppress(FileNotFoundError):  # moved away meanwhile
                        status = item.stat(follow_symlinks=False)
                        yield Entry(name, status.st_size, status.st_mtime)

    def copy(self, source: str, target: str) -> None:
        """A hard link where the file system has them: objects are never edited in place."""
        self._place(target, lambda path: _link(self._file(source), path))

    def move(self, source: str, target: str) -> None:
        # First: the file must not look old to a collector for a moment where it has just arrived.
        os.utime(self._file(source))
        self._place(target, lambda path: os.replace(self._file(source), path))
        faults.hit("store.moved")

    def remove(self, name: str) -> bool:
        try:
            os.unlink(self._file(name))
        except FileNotFoundError:
            return False
        return True

    def discard_unfinished(self, before: float) -> int:
        return discard_stale(self, before)

    def url(self, name: str) -> str:
        return Path(self._file(name)).as_uri()

    def presigned_url(self, name: str, seconds: int) -> str | None:
        return None

    def path(self, name: str) -> Path | None:
        return Path(self._file(name))

    def probe(self) -> None:
        with self._stage() as staged:
            staged.write(b"mutoscope")

    def _equals(self, name: str, other: int) -> bool | None:
        """Whether an object has the bytes of an open file: both are in memory, or soon will be. None when it
        is absent."""
        try:
            descriptor = os.open(self._file(name), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            return _same_bytes(descriptor, other)
        except OSError:  # a bad block
            return False
        finally:
            os.close(descriptor)

    def _file(self, name: str) -> str:
        return f"{self.root}/{name}"

    def _place(self, name: str, operation: Callable[[str], None]) -> None:
        """Run `operation` on the file of a name, whose folder is made when it is missing; then make the
        change last, where that was asked for."""
        target = self._file(name)
        folder = os.path.dirname(target)
        try:
            operation(target)
        except FileNotFoundError:
            os.makedirs(folder, exist_ok=True)
            if self.durable:
                _sync_folder(os.path.dirname(folder))  # a new folder is an entry of its own
            operation(target)
        if self.durable:
            _sync_folder(folder)

    def _create(self) -> None:
        for folder in (layout.OBJECTS, layout.TMP):
            os.makedirs(self._file(folder), exist_ok=True)
        with contextlib.suppress(FileExistsError), open(self._file(layout.README_NAME), "x") as file:
            file.write(layout.README)


class StagedFile:
    """A file in ``tmp/``, on the same file system as its destination so that the rename is atomic."""

    def __init__(self, backend: LocalBackend, path: str) -> None:
        self._backend = backend
        self._path: str | None = path
        # Read-only from birth: caches hard-link to objects, and an edit there must not reach the store.
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)

    def write(self, chunk: Buffer) -> None:
        written = os.write(self._descriptor, chunk)
        if written < len(chunk):
            view = memoryview(chunk)
            while written < len(view):
                written += os.write(self._descriptor, view[written:])
        faults.hit("store.mid_write")

    def matches(self, name: str, facts: Facts) -> bool | None:
        return self._backend._equals(name, self._descriptor)

    def fill(self, source: int) -> int:
        """Write all bytes of another open file; how many there were."""
        position = 0
        while count := _copy(source, self._descriptor, position):
            position += count
            faults.hit("store.mid_write")
        return position

    def commit(self, name: str, facts: Facts, *, replace: bool) -> None:
        path = self._path
        assert path is not None, "committed twice"
        if self._backend.durable:
            os.fsync(self._descriptor)
        # Closed before the rename: network file systems report a full disk only here.
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)
        faults.hit("store.before_commit")
        self._backend._place(name, lambda target: os.replace(path, target))
        self._path = None
        faults.hit("store.after_commit")

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


class StagedCopy:
    """A file that lies elsewhere and is copied only if the store does not hold its bytes: a duplicate of any
    size writes nothing, and the copy is made by the system.

    The file is read twice, for its digest and for the copy, so it must not change in between.
    """

    def __init__(self, backend: LocalBackend, origin: BinaryIO) -> None:
        self._backend = backend
        self._descriptor = origin.fileno()
        self._version = _version(self._descriptor)
        self._size = 0

    def write(self, chunk: Buffer) -> None:
        self._size += len(chunk)

    def matches(self, name: str, facts: Facts) -> bool | None:
        return self._backend._equals(name, self._descriptor)

    def commit(self, name: str, facts: Facts, *, replace: bool) -> None:
        with self._backend._stage() as staged:
            copied = staged.fill(self._descriptor)
            if copied != self._size or _version(self._descriptor) != self._version:
                raise changed(facts.digest)
            staged.commit(name, facts, replace=replace)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


def _version(descriptor: int) -> tuple[int, int, int]:
    status = os.fstat(descriptor)
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _same_bytes(one: int, other: int) -> bool:
    """Whether two open files hold the same, from their beginnings."""
    size = os.fstat(one).st_size
    if os.fstat(other).st_size != size:
        return False
    return all(
        pread_fully(one, start, _COMPARE_BYTES) == pread_fully(other, start, _COMPARE_BYTES)
        for start in range(0, size, _COMPARE_BYTES)
    )


def _copy(source: int, target: int, position: int) -> int:
    """Copy some bytes at `position`, inside the system where it can; 0 at the end."""
    try:
        return os.copy_file_range(source, target, _COPY_BYTES, position, position)
    except (AttributeError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in _NO_COPYING:
            raise
    chunk = os.pread(source, _COMPARE_BYTES, position)
    return os.pwrite(target, chunk, position) if chunk else 0


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # a file system without hard links
        shutil.copyfile(source, target)


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
