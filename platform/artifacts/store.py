"""The content-addressed store: a key is the SHA-256 of the bytes it holds.

Put is atomic and idempotent; a read verifies. Where the object is already there, put compares it as far as
the medium allows for less than writing would cost, and writes only if it differs: then what was there goes to
quarantine, and the sound bytes take its place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

from mutoscope.platform.artifacts import layout
from mutoscope.platform.artifacts.appearing import appearing
from mutoscope.platform.artifacts.backend import Backend, Buffer, Facts, Staged, open_backend
from mutoscope.platform.artifacts.marker import Marked
from mutoscope.platform.artifacts.pages import Pages
from mutoscope.platform.artifacts.reader import CHUNK_BYTES, corrupt, open_verified
from mutoscope.platform.artifacts.shelves import Condition, Shelves, StoredObject
from mutoscope.platform.errors import ArtifactMissing, InvalidParameter, StoreUnavailable, StoreUnwritable
from mutoscope.platform.ids import sha256
from mutoscope.platform.refs import ArtifactRef

if TYPE_CHECKING:
    from mutoscope.platform.settings import Settings

Source = bytes | bytearray | memoryview | BinaryIO | Path | Iterable[bytes]

T = TypeVar("T")

_RACES = 5
"""Times in a row that a put may be overtaken and still find nothing; more is no race but a broken medium."""


class ArtifactStore(Pages, Marked):
    """Artifacts by digest, over one backend, and the pages to browse them. Thread-safe: it keeps no state of
    its own."""

    def __init__(self, backend: Backend, url: str) -> None:
        super().__init__(backend, url)
        self._shelves = Shelves(backend)

    @classmethod
    def open(cls, url: str, *, durable: bool = False, deadline_seconds: float = 60.0) -> ArtifactStore:
        """The store at `url`: ``file:///folder``, a bare path, ``s3://bucket/prefix``, or any fsspec URL.
        Nothing is created or asked until the first call.

        Args:
            durable: survive power cuts, not only killed processes (file stores; see `LocalBackend`).
            deadline_seconds: how long requests to a server that does not answer are repeated (S3 stores; see
                `S3Client`).
        """
        return cls(open_backend(url, durable=durable, deadline_seconds=deadline_seconds), url)

    @classmethod
    def of(cls, settings: Settings) -> ArtifactStore:
        """The store that a process is configured for."""
        store = cls.open(settings.store_url, deadline_seconds=settings.store_deadline_seconds)
        store.public_url = settings.pages_url.rstrip("/")
        return store

    # Writing

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
        if isinstance(source, bytes | bytearray | memoryview):
            return self._put_bytes(memoryview(source).cast("B"), kind, media_type, meta or {})
        ArtifactRef("0" * 64, kind, media_type, 0, meta or {})  # refuses bad input before any byte is written
        facts = Facts(media_type, kind)
        if isinstance(source, Path):
            with source.open("rb", buffering=0) as file:
                origin = cast(BinaryIO, file)
                digest, size = self._put_stream(_chunks(origin), facts, origin if file.seekable() else None)
        else:
            digest, size = self._put_stream(_chunks(source), facts)
        return ArtifactRef(digest, kind, media_type, size, meta or {})

    def check_writable(self) -> None:
        """Raise StoreUnwritable unless a few bytes can be written (and removed) now."""
        with self._writing():
            self._backend.probe()

    def discard_unfinished(self, before: float) -> int:
        """Remove what writers that were killed left behind: writes begun before that time (seconds since the
        epoch) and not ended; how many there were."""
        with self._writing():
            return self._backend.discard_unfinished(before)

    # Reading. A missing object is looked for in the trash: a collector may have been mistaken.

    def get(self, digest: str) -> bytes:
        """The bytes, verified. Raises ArtifactMissing or ArtifactCorrupt."""
        data = self._found(digest, self._backend.read)
        found = sha256(data)
        if found != digest:
            raise corrupt(digest, found)
        return data

    def open_read(self, digest: str) -> BinaryIO:
        """A forward-only stream that raises ArtifactCorrupt before it hands out the last bytes of a damaged
        object."""
        return self._found(digest, lambda name: open_verified(self._backend, name, digest))

    def read_range(self, digest: str, start: int, length: int) -> bytes:
        """Up to `length` bytes from `start`, fewer only where the object ends. *Not* verified: whoever reads
        slices has digests of their own for them. Raises ArtifactMissing."""
        if start < 0 or length < 0:
            raise InvalidParameter("range", (start, length), "use a start and a length of 0 or more bytes")
        return self._found(digest, lambda name: self._backend.read_range(name, start, length))

    def download(self, digest: str, path: Path) -> None:
        """Write the verified bytes to `path`, which appears complete or not at all."""
        with (
            appearing(path) as temporary,
            self.open_read(digest) as source,
            temporary.open("xb", buffering=0) as file,
        ):
            while chunk := source.read(CHUNK_BYTES):
                file.write(chunk)

    def contains(self, wanted: str | ArtifactRef) -> bool:
        """Whether an object of that digest exists; for a reference, with its size. One in the trash does not.
        Cheap: the bytes are not read."""
        digest = wanted if isinstance(wanted, str) else wanted.digest
        entry = self._backend.entry(layout.object_name(digest))
        return entry is not None and (isinstance(wanted, str) or entry.size == wanted.size)

    def size(self, digest: str) -> int:
        """Bytes of the stored object. Raises ArtifactMissing."""
        entry = self._backend.entry(layout.object_name(digest))
        if entry is None:
            raise self._missing(digest)
        return entry.size

    def verify(self, digest: str) -> Condition:
        """``sound``, ``missing`` (not in ``objects/``) or ``damaged``. Reads the whole object, in bounded
        memory."""
        return self._shelves.condition(layout.object_name(digest), digest)

    def url(self, digest: str) -> str:
        """Where the object lives, for people and other tools."""
        return self._backend.url(layout.object_name(digest))

    def presigned_url(self, digest: str, seconds: int) -> str | None:
        """A link to the object that opens without credentials for so long; None where the store has none."""
        return self._backend.presigned_url(layout.object_name(digest), seconds)

    @property
    def is_local(self) -> bool:
        """Whether objects are files of this machine, such as `local_path` gives."""
        return self._backend.path(layout.README_NAME) is not None

    def local_path(self, digest: str) -> Path | None:
        """The object as a read-only local file, or None when the store is remote. Not verified; raises
        ArtifactMissing."""
        path = self.object_path(digest)
        if path is not None and not path.exists() and not self.restore(digest):
            raise self._missing(digest)
        return path

    def object_path(self, digest: str) -> Path | None:
        """Where the object's file is, or would be; None when the store is remote. Unlike `local_path` it
        looks for nothing and brings nothing back from the trash."""
        return self._backend.path(layout.object_name(digest))

    # Listing and moving. All moves are idempotent and may be interrupted anywhere.

    def digests(self) -> Iterator[str]:
        """Every object in the store, in no particular order."""
        return (stored.digest for stored in self.inventory())

    def inventory(self) -> Iterator[StoredObject]:
        """Every object, in no particular order. Neither trash nor quarantine."""
        return self._shelves.listed(layout.OBJECTS)

    def trashed(self) -> Iterator[StoredObject]:
        """What lies in the trash; `modified` is when it came there."""
        return self._shelves.listed(layout.TRASH)

    def quarantined(self) -> Iterator[StoredObject]:
        """Damaged objects that were set aside, by the digest they were stored under."""
        return self._shelves.listed(layout.QUARANTINE)

    def foreign(self) -> Iterator[str]:
        """Paths among the objects, trash and quarantine that are named like none of them."""
        return self._shelves.foreign()

    def is_trashed(self, digest: str) -> bool:
        """Whether the trash has an object of that name. Cheap: the bytes are not read."""
        return self._backend.entry(layout.trash_name(digest)) is not None

    def trash(self, digest: str) -> bool:
        """Move an object to the trash; False if there was none. Reads still find it there."""
        with self._writing():
            return self._shelves.trash(digest)

    def restore(self, digest: str) -> bool:
        """Bring an object back from the trash, if it is sound; False if there was none."""
        with self._writing():
            return self._shelves.restore(digest)

    def purge(self, digest: str) -> bool:
        """Remove an object from the trash for good; False if there was none."""
        with self._writing():
            return self._shelves.purge(digest)

    def quarantine(self, digest: str) -> None:
        """Set a damaged object aside for inspection. One that proves sound stays where it is."""
        with self._writing():
            self._shelves.quarantine(digest)

    def _put_bytes(
        self, data: memoryview, kind: str, media_type: str, meta: Mapping[str, Any]
    ) -> ArtifactRef:
        ref = ArtifactRef(hashlib.sha256(data).hexdigest(), kind, media_type, len(data), meta)
        name, facts = layout.object_name(ref.digest), Facts(media_type, kind, ref.digest)
        self._place(
            ref.digest,
            lambda: self._backend.matches(name, data, facts),
            lambda replace: self._backend.write(name, data, facts, replace=replace),
        )
        return ref

    def _put_stream(
        self, chunks: Iterator[Buffer], facts: Facts, origin: BinaryIO | None = None
    ) -> tuple[str, int]:
        hasher, size = hashlib.sha256(), 0
        with self._staging(origin) as staged:
            for chunk in chunks:
                with self._writing():
                    staged.write(chunk)
                hasher.update(chunk)
                size += len(chunk)
            facts = replace(facts, digest=hasher.hexdigest())
            name = layout.object_name(facts.digest)
            self._place(
                facts.digest,
                lambda: staged.matches(name, facts),
                lambda replace: staged.commit(name, facts, replace=replace),
            )
        return facts.digest, size

    def _place(self, digest: str, matches: Callable[[], bool | None], write: Callable[[bool], None]) -> None:
        """Write what is not there, keep what is, and set aside what is there but damaged."""
        try:
            for attempt in range(_RACES):
                found = matches()
                if found:
                    return
                if found is False:
                    self._shelves.set_aside(digest)
                try:
                    write(found is False)
                    return
                except FileExistsError:  # another writer was faster: see what it wrote
                    if attempt == _RACES - 1:
                        raise
        except (OSError, StoreUnavailable) as error:
            raise self._unwritable(error) from error

    def _staging(self, origin: BinaryIO | None) -> Staged:
        with self._writing():
            return self._backend.stage(origin)

    def _found(self, digest: str, read: Callable[[str], T]) -> T:
        """What `read` makes of the object. One in the trash is brought back first, or read there by those who
        may not write."""
        name = layout.object_name(digest)
        with self._reading():
            try:
                return read(name)
            except FileNotFoundError:
                pass
            try:
                if not self._shelves.restore(digest):
                    raise self._missing(digest)
            except (StoreUnwritable, OSError):
                name = layout.trash_name(digest)
            try:
                return read(name)
            except FileNotFoundError:
                raise self._missing(digest) from None

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
