"""Reading an archive that may be anything: nothing is believed before it is checked.

A name must be one of ours, so no absolute path, no ``..``, no link out, no device can be in an archive that
is read; and nothing is ever unpacked to a path that the archive names. Sizes are compared with the file
before a byte is read, each name may come once, every digest is computed, and the checksums at the end prove
that nothing is missing.
"""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self, cast

from mutoscope.platform.custody.archive_format import (
    MANIFEST,
    OBJECT_NAME,
    OUTPUT_NAME,
    README,
    SUMS,
    TABLES,
    ArtifactLine,
    Manifest,
    read_rows,
)
from mutoscope.platform.errors import ArchiveInvalid

Progress = Callable[[int, int], None]
"""Called with bytes done, of so many."""

_CHUNK = 1 << 20
_MANIFEST_BYTES = 64 << 20
_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK": "zip",
}
_FILES = frozenset({MANIFEST, README, SUMS, *(f"rows/{table}.jsonl" for table in TABLES)})


@dataclass(frozen=True, slots=True)
class Member:
    """A file of the archive, and where its bytes lie."""

    name: str
    offset: int
    size: int


class ArchiveReader:
    """An archive that has been checked from end to end.

    Attributes:
        manifest: what it says of itself.
        objects: digest to member.
    """

    def __init__(self, file: BinaryIO, progress: Progress) -> None:
        self._file = file
        self._size = os.fstat(file.fileno()).st_size
        self._tables: dict[str, Member] = {}
        self.objects: dict[str, Member] = {}
        self.manifest = self._check(progress)
        self._check_artifacts()

    @classmethod
    @contextmanager
    def open(cls, path: Path, progress: Progress = lambda done, total: None) -> Iterator[Self]:
        """Open and check. Raises ArchiveInvalid, whose line says what is wrong with the file."""
        try:
            with path.open("rb") as file:
                try:
                    yield cls(cast(BinaryIO, file), progress)
                except ArchiveInvalid as error:
                    raise ArchiveInvalid(f"{path}: {error}; nothing was imported") from None
        except OSError as error:
            if error.filename != str(path):
                raise
            raise ArchiveInvalid(f"{path} cannot be read ({error.strerror})") from None

    def rows(self, table: str) -> Iterator[object]:
        """The records of a table, in the archive's order."""
        with self._opened(self._tables[table]) as source:
            yield from read_rows(table, source)

    def read(self, digest: str) -> Iterator[bytes]:
        """An object's bytes, in chunks."""
        member = self.objects[digest]
        return _chunks(self._file, member.offset, member.size)

    # The check

    def _check(self, progress: Progress) -> Manifest:
        manifest: Manifest | None = None
        sums: dict[str, str] = {}
        last: Member | None = None
        for member in self._members():
            if manifest is None:
                manifest = self._read_manifest(member)
            if last is not None and last.name == SUMS:
                raise ArchiveInvalid(f"it goes on after {SUMS}, with {member.name!r}")
            last = member
            if member.name == SUMS:
                continue
            self._place(member, sums)
            progress(member.offset + member.size, self._size)
        if manifest is None or last is None or last.name != SUMS:
            raise ArchiveInvalid(f"it is incomplete: {SUMS}, its last member, is not there; copy it again")
        self._compare_sums(last, sums)
        missing = sorted(set(TABLES) - set(self._tables))
        if missing:
            raise ArchiveInvalid(f"it lacks rows/{missing[0]}.jsonl")
        return manifest

    def _read_manifest(self, member: Member) -> Manifest:
        if member.name != MANIFEST or member.size > _MANIFEST_BYTES:
            raise ArchiveInvalid(f"it is no Mutoscope archive: its first member is not {MANIFEST}")
        return Manifest.parse(b"".join(_chunks(self._file, member.offset, member.size)))

    def _place(self, member: Member, sums: dict[str, str]) -> None:
        """Enter a member under what it is, with its digest computed."""
        hasher = hashlib.sha256()
        for chunk in _chunks(self._file, member.offset, member.size):
            hasher.update(chunk)
        found = hasher.hexdigest()
        match = OBJECT_NAME.fullmatch(member.name)
        if match is not None:
            if found != match[2]:
                raise ArchiveInvalid(
                    f"object {match[2][:12]} is damaged (its bytes hash to {found[:12]}): copy it again"
                )
            self.objects[found] = member
            return
        sums[member.name] = found
        if member.name.startswith("rows/"):
            table = member.name[len("rows/") : -len(".jsonl")]
            self._tables[table] = member
            for _ in self.rows(table):  # every line is read once now, so that no other reader meets a bad one
                pass

    def _compare_sums(self, member: Member, sums: dict[str, str]) -> None:
        left, count = dict(sums), 0
        with self._opened(member) as source:
            while line := source.readline(4096):
                count += 1
                digest, _, name = line.decode(errors="replace").rstrip("\n").partition("  ")
                match = OBJECT_NAME.fullmatch(name)
                known = digest in self.objects and match is not None and match[2] == digest
                if not known and left.pop(name, None) != digest:
                    raise ArchiveInvalid(
                        f"{SUMS} and the archive disagree about {name[:100]!r}: copy it again"
                    )
        if left or count != len(sums) + len(self.objects):
            missing = len(sums) + len(self.objects) - count
            raise ArchiveInvalid(f"{SUMS} does not name {missing} of its members: it was altered")

    def _check_artifacts(self) -> None:
        """Objects and their rows are the same set, sizes included."""
        archived = 0
        for line in cast("Iterator[ArtifactLine]", self.rows("artifacts")):
            member = self.objects.get(line.digest)
            if (member is not None) != (line.bytes == "archived"):
                there = "is there" if member else "is not there"
                raise ArchiveInvalid(f"object {line.digest[:12]} {there}, but its row says {line.bytes}")
            if member is not None and member.size != line.size:
                raise ArchiveInvalid(
                    f"object {line.digest[:12]} has {member.size} bytes, its row says {line.size}"
                )
            archived += member is not None
        if archived != len(self.objects):
            raise ArchiveInvalid(f"{len(self.objects) - archived} of its objects have no row")
        said = self.manifest
        if said.objects != archived:
            raise ArchiveInvalid(f"its {MANIFEST} counts {said.objects} objects, there are {archived}")

    # The tar

    def _members(self) -> Iterator[Member]:
        """Every regular member, once. Raises ArchiveInvalid for whatever has no business here."""
        self._refuse_compressed()
        seen: set[str] = set()
        try:
            with tarfile.open(fileobj=self._file, mode="r:") as tar:
                while (info := tar.next()) is not None:
                    tar.members = []  # type: ignore[attr-defined]  # it would remember them all
                    if info.name in seen:
                        raise ArchiveInvalid(f"it holds {info.name[:100]!r} twice")
                    seen.add(info.name)
                    member = self._judge(info, seen)
                    if member is not None:
                        yield member
        except tarfile.TarError as error:
            raise ArchiveInvalid(f"it is no tar archive, or a truncated one ({error})") from None

    def _judge(self, info: tarfile.TarInfo, seen: set[str]) -> Member | None:
        """A file of ours; None for a link of ours."""
        if info.type == tarfile.LNKTYPE and OUTPUT_NAME.fullmatch(info.name) and info.linkname in seen:
            return None
        ours = info.name in _FILES or OBJECT_NAME.fullmatch(info.name) is not None
        plain = info.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not info.pax_headers and not info.sparse
        if not (ours and plain):
            raise ArchiveInvalid(
                f"it holds {info.name[:100]!r} ({_noun(info)}), which is no part of an archive"
            )
        if info.size < 0 or info.offset_data + info.size > self._size:
            raise ArchiveInvalid(
                f"it is truncated within {info.name} ({info.size} bytes are announced): copy it again"
            )
        return Member(info.name, info.offset_data, info.size)

    def _refuse_compressed(self) -> None:
        self._file.seek(0)
        start = self._file.read(8)
        self._file.seek(0)
        for magic, name in _COMPRESSED.items():
            if start.startswith(magic):
                raise ArchiveInvalid(f"it is compressed ({name}): archives are plain tar, unpack it first")

    @contextmanager
    def _opened(self, member: Member) -> Iterator[BinaryIO]:
        raw = _Slice(self._file, member.offset, member.size)
        with io.BufferedReader(raw, _CHUNK) as source:
            yield cast(BinaryIO, source)


class _Slice(io.RawIOBase):
    """A part of a file as a stream. Keeps its own position: several may be read in turn."""

    def __init__(self, file: BinaryIO, start: int, size: int) -> None:
        super().__init__()
        self._descriptor, self._at, self._end = file.fileno(), start, start + size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        target = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        data = os.pread(self._descriptor, min(len(target), self._end - self._at), self._at)
        target[: len(data)] = data
        self._at += len(data)
        return len(data)


def _chunks(file: BinaryIO, start: int, size: int) -> Iterator[bytes]:
    end = start + size
    while start < end:
        data = os.pread(file.fileno(), min(_CHUNK, end - start), start)
        if not data:
            raise ArchiveInvalid("it became shorter while it was read: do not write it meanwhile")
        start += len(data)
        yield data


def _noun(info: tarfile.TarInfo) -> str:
    if info.issym() or info.islnk():
        return f"a link to {info.linkname[:100]!r}"
    if info.isdev():
        return "a device"
    return "a folder" if info.isdir() else "a file"
