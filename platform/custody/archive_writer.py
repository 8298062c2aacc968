"""Writing a tar so that equal content gives equal bytes, and nobody ever sees half of one."""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, cast

from mutoscope.platform import faults
from mutoscope.platform.custody.archive_format import SUMS
from mutoscope.platform.errors import InvalidParameter

_CHUNK = 1 << 20
_SPOOL = 4 << 20


def spool() -> BinaryIO:
    """A temporary file, in memory while it is small."""
    return cast(BinaryIO, SpooledTemporaryFile(max_size=_SPOOL, prefix="mutoscope-"))


class ArchiveWriter:
    """A tar under way: members in the order they are added, checksums last.

    The format is GNU's: plain up to 8 GiB, and without limit beyond.
    """

    def __init__(self, file: BinaryIO) -> None:
        # Not `tarfile.open`: that one does not take a buffer's size, and copies in pieces of 16 KiB.
        self._tar = tarfile.TarFile(fileobj=file, mode="w", format=tarfile.GNU_FORMAT, copybufsize=_CHUNK)
        self._sums = spool()

    def add(self, name: str, source: BinaryIO | bytes, size: int | None = None) -> None:
        """A file of `size` bytes.

        Raises:
            InvalidParameter: the source has fewer bytes, or more.
        """
        if isinstance(source, bytes):
            size, source = len(source), io.BytesIO(source)
        assert size is not None
        hashing = _Hashing(source)
        try:
            self._append(_member(name, size=size), hashing)
        except OSError as error:
            if hashing.count < size and hashing.ended:
                raise _unequal(name, size, f"{hashing.count}") from error
            raise
        if source.read(1):
            raise _unequal(name, size, "more")
        self._sums.write(f"{hashing.hexdigest()}  {name}\n".encode())

    def link(self, name: str, target: str) -> None:
        """Another name for a member that is there already."""
        member = _member(name)
        member.type, member.linkname = tarfile.LNKTYPE, target
        self._append(member)

    def finish(self) -> None:
        """The checksums, which say that the archive is complete."""
        size = self._sums.tell()
        self._sums.seek(0)
        self._append(_member(SUMS, size=size), self._sums)
        self._tar.close()

    def close(self) -> None:
        self._sums.close()

    def _append(self, member: tarfile.TarInfo, source: object = None) -> None:
        self._tar.addfile(member, cast("BinaryIO | None", source))
        # The tar would remember every member; ours has to stay small whatever it holds.
        self._tar.members = []  # type: ignore[attr-defined]


class _Hashing:
    """Hashes what is read through it."""

    def __init__(self, source: BinaryIO) -> None:
        self._source, self._hasher = source, hashlib.sha256()
        self.count, self.ended = 0, False
        self.hexdigest = self._hasher.hexdigest

    def read(self, length: int) -> bytes:
        # A raw stream may answer with less than was asked for, which the tar would take for the end.
        parts, missing = [], length
        while missing and (part := self._source.read(missing)):
            parts.append(part)
            missing -= len(part)
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self.ended = bool(missing)
        self._hasher.update(data)
        self.count += len(data)
        return data


@contextmanager
def writing_archive(path: Path) -> Iterator[ArchiveWriter]:
    """A new archive at `path`, which appears complete or not at all. What a killed writer left is used again.

    Raises:
        InvalidParameter: the place cannot be written, is full, or somebody else is writing this archive.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        with _locked(partial) as file:
            writer = ArchiveWriter(file)
            try:
                yield writer
                writer.finish()
                file.flush()
                os.fsync(file.fileno())
                faults.hit("export.before_rename")
                os.replace(partial, path)
            except BaseException:
                partial.unlink(missing_ok=True)
                raise
            finally:
                writer.close()
    except OSError as error:
        raise InvalidParameter(
            "file", str(path), f"name a file in a writable folder with room for it ({error.strerror})"
        ) from error


@contextmanager
def _locked(path: Path) -> Iterator[BinaryIO]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    with os.fdopen(descriptor, "r+b", buffering=_CHUNK) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidParameter("file", str(path), "another export is writing it: wait for it") from None
        file.truncate(0)
        yield file


def _member(name: str, size: int = 0) -> tarfile.TarInfo:
    """Owner, times and modes are the same for everybody: they are nobody's business and would make equal
    archives differ."""
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = size, 0, 0o644
    return member


def _unequal(name: str, size: int, found: str) -> InvalidParameter:
    return InvalidParameter(name, size, f"it has {found} bytes: check the store with `mutoscope fsck`")
