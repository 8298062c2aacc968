"""The content-addressed store: a key is the SHA-256 of the bytes it holds.

Put is atomic and idempotent; a read verifies. What happens when the object is already there:

- bytes in memory are compared with the stored ones (local files only: that is far cheaper than writing)
  and written only if they differ;
- streams, whose name is known only once they are staged, replace the object. The bytes are equal unless
  the stored object was damaged, so readers cannot tell, and a damaged object is repaired either way.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

from mutoscope.platform.artifacts.backend import Backend, Buffer, open_backend
from mutoscope.platform.artifacts.reader import VerifyingReader, corrupt
from mutoscope.platform.errors import ArtifactMissing, InvalidParameter, StoreUnwritable
from mutoscope.platform.ids import new_id
from mutoscope.platform.refs import ArtifactRef

CHUNK_BYTES = 1 << 20
"""Bytes held in memory at a time by a streaming put or read."""

Source = bytes | bytearray | memoryview | BinaryIO | Path | Iterable[bytes]


class ArtifactStore:
    """Artifacts by digest, over one backend. Thread-safe: it keeps no state of its own."""

    def __init__(self, backend: Backend, url: str) -> None:
        self._backend = backend
        self.root_url = url

    @classmethod
    def open(cls, url: str, *, durable: bool = False) -> ArtifactStore:
        """The store at `url`: ``file:///folder``, a bare path, or any fsspec URL. Nothing is created until a
        put.

        Args:
            durable: survive power cuts, not only killed processes (file stores; see `LocalBackend`).
        """
        return cls(open_backend(url, durable=durable), url)

    def put(
        self, source: Source, *, kind: str, media_type: str, meta: Mapping[str, Any] | None = None
    ) -> ArtifactRef:
        """Store bytes and return their reference.

        Args:
            source: bytes, a file path, a binary file read to its end, or chunks of bytes. Files and streams
                of any size pass through one chunk at a time.

        Raises:
            StoreUnwritable: the medium refuses or is full; nothing is left behind.
            InvalidParameter: the reference would not be valid (kind, meta); nothing is written.
        """
        ArtifactRef("0" * 64, kind, media_type, 0, meta or {})  # refuses bad input before any byte is written
        if isinstance(source, bytes | bytearray | memoryview):
            digest, size = self._put_bytes(source)
        elif isinstance(source, Path):
            with source.open("rb", buffering=0) as file:
                digest, size = self._put_stream(_chunks(cast(BinaryIO, file)))
        else:
            digest, size = self._put_stream(_chunks(source))
        return ArtifactRef(digest, kind, media_type, size, meta or {})

    def get(self, digest: str) -> bytes:
        """The bytes, verified. Raises ArtifactMissing or ArtifactCorrupt."""
        try:
            data = self._backend.read(self.key(digest))
        except FileNotFoundError:
            raise self._missing(digest) from None
        found = hashlib.sha256(data).hexdigest()
        if found != digest:
            raise corrupt(digest, found)
        return data

    def open_read(self, digest: str) -> BinaryIO:
        """A forward-only stream that raises ArtifactCorrupt before it hands out the last bytes of a damaged
        object."""
        key = self.key(digest)
        try:
            raw = self._backend.open(key)
        except FileNotFoundError:
            raise self._missing(digest) from None
        try:
            size = self._backend.size(key)
            reader = VerifyingReader(raw, digest, size or 0)
        except BaseException:
            raw.close()
            raise
        return io.BufferedReader(reader, CHUNK_BYTES)

    def download(self, digest: str, path: Path) -> None:
        """Write the verified bytes to `path`, which appears complete or not at all."""
        temporary = path.with_name(f".{path.name}.{new_id()}")
        try:
            with self.open_read(digest) as source, temporary.open("xb", buffering=0) as file:
                while chunk := source.read(CHUNK_BYTES):
                    file.write(chunk)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
            raise

    def contains(self, digest: str) -> bool:
        """Whether an object of that name exists. Cheap: the bytes are not read."""
        return self._backend.size(self.key(digest)) is not None

    def size(self, digest: str) -> int:
        """Bytes of the stored object. Raises ArtifactMissing."""
        size = self._backend.size(self.key(digest))
        if size is None:
            raise self._missing(digest)
        return size

    def digests(self) -> Iterator[str]:
        """Every object in the store, in no particular order."""
        return (key.rpartition("/")[2] for key in self._backend.objects())

    def key(self, digest: str) -> str:
        """The object's name below ``objects/``: two digits spread the files over 256 folders."""
        if len(digest) != 64:
            raise InvalidParameter("digest", digest, "use all 64 hex digits; the catalog resolves prefixes")
        return f"{digest[:2]}/{digest}"

    def url(self, digest: str) -> str:
        """Where the object lives, for people and other tools."""
        return self._backend.url(self.key(digest))

    def local_path(self, digest: str) -> Path | None:
        """The object as a read-only local file, or None when the store is remote. Not verified; raises
        ArtifactMissing."""
        path = self._backend.path(self.key(digest))
        if path is not None and not path.exists():
            raise self._missing(digest)
        return path

    def check_writable(self) -> None:
        """Raise StoreUnwritable unless a few bytes can be written (and removed) now."""
        with self._writing():
            self._backend.probe()

    def _put_bytes(self, data: Buffer) -> tuple[str, int]:
        view = memoryview(data).cast("B")
        digest = hashlib.sha256(view).hexdigest()
        key = self.key(digest)
        if not self._backend.holds(key, view):
            with self._writing(), self._backend.stage() as staged:
                staged.write(view)
                staged.commit(key)
        return digest, len(view)

    def _put_stream(self, chunks: Iterator[Buffer]) -> tuple[str, int]:
        hasher, size = hashlib.sha256(), 0
        with self._staging() as staged:
            for chunk in chunks:
                with self._writing():
                    staged.write(chunk)
                hasher.update(chunk)
                size += len(chunk)
            digest = hasher.hexdigest()
            with self._writing():
                staged.commit(self.key(digest))
        return digest, size

    def _staging(self) -> Any:
        with self._writing():
            return self._backend.stage()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Turns a refusal of the medium into one line with a remedy. Errors of the *source* do not pass
        through here."""
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error) or type(error).__name__
            raise StoreUnwritable(
                f"the artifact store {self.root_url} cannot be written ({reason}): "
                "free space or fix its permissions, or set MUTOSCOPE_STORE_URL to another place"
            ) from error

    def _missing(self, digest: str) -> ArtifactMissing:
        return ArtifactMissing(
            f"artifact {digest[:12]} is not in the store {self.root_url}: replay the run that made it, "
            "or set MUTOSCOPE_STORE_URL to the store that holds it"
        )


def _chunks(source: BinaryIO | Iterable[bytes]) -> Iterator[Buffer]:
    read = getattr(source, "read", None)
    if read is None:
        for chunk in source:
            if not isinstance(chunk, bytes | bytearray | memoryview):
                raise InvalidParameter(
                    "source", type(chunk).__name__, "use bytes, a path, or chunks of bytes"
                )
            yield chunk
        return
    while chunk := read(CHUNK_BYTES):
        yield chunk
