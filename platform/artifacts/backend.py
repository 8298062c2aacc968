"""The bottom of the store: named bytes, nothing about digests.

A backend promises, and the contract suite proves for each:

- a name is absent or complete: whatever fails before `commit` or `write` returns leaves no trace under any
  name;
- both replace what was there, so that writing again repairs a damaged object;
- `move` never has a moment in which neither name holds the bytes;
- memory stays bounded by the chunks it is given.

Names are those of `layout`, relative to the root of the store.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Protocol, Self

from mutoscope.platform.artifacts import layout
from mutoscope.platform.artifacts.urls import scrubbed
from mutoscope.platform.errors import InvalidInput

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Facts:
    """What a medium that keeps such things is told about an object.

    Attributes:
        media_type: RFC 6838 type; what a browser is told.
        kind: the artifact's kind; empty for pages.
        digest: hex SHA-256 of the bytes; empty for pages, which have no name of their own.
    """

    media_type: str
    kind: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a listing: name, bytes, and when it was last written or moved, in seconds since the epoch
    by the store's clock."""

    name: str
    size: int
    modified: float


class Staged(Protocol):
    """Bytes being written, under no name yet. Leaving the context without a commit discards them."""

    def write(self, chunk: Buffer) -> None: ...
    def matches(self, name: str, facts: Facts) -> bool | None:
        """As `Backend.matches`, for what has been written here."""
        ...

    def commit(self, name: str, facts: Facts, *, replace: bool) -> None:
        """As `Backend.write`, for what has been written here."""
        ...

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Backend(Protocol):
    """Where objects live. Missing names raise FileNotFoundError; refusals of the medium raise OSError, or a
    MutoscopeError where the backend can say more."""

    root: str

    def matches(self, name: str, data: Buffer, facts: Facts) -> bool | None:
        """Whether the object equals `data`, as far as can be told for less than writing costs; None when it
        is absent."""
        ...

    def write(self, name: str, data: Buffer, facts: Facts, *, replace: bool) -> None:
        """Make `name` hold `data`, at once.

        Args:
            replace: otherwise a medium that can tell raises FileExistsError when somebody else was faster;
                one that cannot replaces what is there.
        """
        ...

    def stage(self, origin: BinaryIO | None = None) -> Staged:
        """Room for bytes whose name is not known yet.

        Args:
            origin: the seekable file that the chunks are being read from. A medium that needs the name
                before the first byte uploads from it instead of keeping a copy.
        """
        ...

    def open(self, name: str) -> tuple[BinaryIO, int]:
        """An unbuffered stream of the object as it is now, and its bytes."""
        ...

    def read(self, name: str) -> bytes: ...
    def read_range(self, name: str, start: int, length: int) -> bytes:
        """Up to `length` bytes from `start`; fewer only where the object ends."""
        ...

    def entry(self, name: str) -> Entry | None:
        """The object's line in a listing, None when absent."""
        ...

    def entries(self, prefix: str) -> Iterator[Entry]:
        """All objects whose name begins with ``prefix/``, in no particular order, in bounded memory."""
        ...

    def copy(self, source: str, target: str) -> None: ...
    def move(self, source: str, target: str) -> None:
        """Also sets `modified` to now. Replaces the target."""
        ...

    def remove(self, name: str) -> bool:
        """False when there was nothing."""
        ...

    def discard_unfinished(self, before: float) -> int:
        """Remove leftovers of writes that began before that time and never ended; how many there were."""
        ...

    def url(self, name: str) -> str: ...
    def presigned_url(self, name: str, seconds: int) -> str | None:
        """A link that opens without credentials for a while; None where the medium has none."""
        ...

    def path(self, name: str) -> Path | None:
        """The object as a local file, where there is one."""
        ...

    def probe(self) -> None:
        """Write and remove a few bytes; raises OSError when that is refused."""
        ...


def discard_stale(backend: Backend, before: float) -> int:
    """Remove the files in ``tmp/`` that were written before that time; how many there were."""
    stale = [entry.name for entry in backend.entries(layout.TMP) if entry.modified < before]
    return sum(backend.remove(name) for name in stale)


def open_backend(url: str, *, durable: bool, deadline_seconds: float) -> Backend:
    """The backend for a store URL: ``file:///folder`` (or a bare path), ``s3://bucket/prefix``, or whatever
    fsspec knows (``memory://x``)."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "file", str(Path(url).expanduser().resolve())
    if scheme in ("file", "local"):
        from mutoscope.platform.artifacts.local import LocalBackend

        if not rest.startswith("/"):
            raise InvalidInput(
                f"store_url={scrubbed(url)!r} names no absolute folder: use file:///path/to/store"
            )
        return LocalBackend(Path(rest), durable=durable)
    if scheme in ("s3", "s3a"):
        return _open_s3(url, deadline_seconds)
    from mutoscope.platform.artifacts.remote import FsspecBackend

    return FsspecBackend(url)


def _open_s3(url: str, deadline_seconds: float) -> Backend:
    try:
        from mutoscope.platform.artifacts.s3 import S3Backend
    except ImportError as error:
        raise InvalidInput(
            f"store_url={scrubbed(url)!r} needs {error.name}: pip install 'mutoscope[s3]'"
        ) from None
    return S3Backend.at(url, deadline_seconds=deadline_seconds)
