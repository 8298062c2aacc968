"""The bottom of the store: named bytes, nothing about digests.

A backend promises three things, which the contract suite proves for each:

- a key is absent or complete: `Staged.commit` makes an object visible at once, and whatever fails before it
  leaves no trace under any key;
- commit replaces what was there, so that writing again repairs a damaged object;
- memory stays bounded by the chunks it is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Protocol, Self

from mutoscope.platform.errors import InvalidInput

Buffer = bytes | bytearray | memoryview


class Staged(Protocol):
    """Bytes being written, under no key yet. Leaving the context without a commit discards them."""

    def write(self, chunk: Buffer) -> None: ...
    def commit(self, key: str) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Backend(Protocol):
    """Where objects live. Missing keys raise FileNotFoundError; refusals of the medium raise OSError."""

    root: str

    def stage(self) -> Staged: ...
    def holds(self, key: str, data: Buffer) -> bool:
        """Whether the object equals `data`, if that costs much less than writing it; False when in doubt."""
        ...

    def open(self, key: str) -> BinaryIO: ...
    def read(self, key: str) -> bytes: ...
    def size(self, key: str) -> int | None:
        """Bytes of the object, None when absent."""
        ...

    def objects(self) -> Iterator[str]:
        """Every key, in no particular order."""
        ...

    def url(self, key: str) -> str: ...
    def path(self, key: str) -> Path | None:
        """The object as a local file, where there is one."""
        ...

    def probe(self) -> None:
        """Write and remove a few bytes; raises OSError when that is refused."""
        ...


def open_backend(url: str, *, durable: bool) -> Backend:
    """The backend for a store URL: ``file:///folder`` (or a bare path), or whatever fsspec knows
    (``memory://x``)."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "file", str(Path(url).expanduser().resolve())
    if scheme in ("file", "local"):
        from mutoscope.platform.artifacts.local import LocalBackend

        if not rest.startswith("/"):
            raise InvalidInput(f"store_url={url!r} names no absolute folder: use file:///path/to/store")
        return LocalBackend(Path(rest), durable=durable)
    from mutoscope.platform.artifacts.remote import FsspecBackend

    return FsspecBackend(url)
