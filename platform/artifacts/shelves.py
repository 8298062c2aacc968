"""Objects, trash and quarantine, and what moves between them.

Everything here may be interrupted anywhere and done again: no step leaves the only copy of sound bytes
unreadable, because a read that finds no object looks into the trash.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from mutoscope.platform import faults
from mutoscope.platform.artifacts import layout
from mutoscope.platform.artifacts.backend import Backend, Entry
from mutoscope.platform.artifacts.reader import open_verified
from mutoscope.platform.errors import ArtifactCorrupt

Condition = Literal["sound", "missing", "damaged"]

_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class StoredObject:
    """What a listing says of an object.

    Attributes:
        size: bytes.
        modified: seconds since the epoch, by the store's clock, when it was written, or arrived where it is.
        name: its path below the store's root.
    """

    digest: str
    size: int
    modified: float
    name: str


class Shelves:
    """The three places of one backend. Digests are complete; nothing here raises ArtifactMissing."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def listed(self, area: str) -> Iterator[StoredObject]:
        for entry in self._backend.entries(area):
            digest = layout.digest_of(entry.name)
            if digest is not None:
                yield StoredObject(digest, entry.size, entry.modified, entry.name)

    def foreign(self) -> Iterator[str]:
        for area in (layout.OBJECTS, layout.TRASH, layout.QUARANTINE):
            for entry in self._backend.entries(area):
                if layout.digest_of(entry.name) is None:
                    yield entry.name

    def condition(self, name: str, digest: str) -> Condition:
        """Reads the whole object in bounded memory."""
        try:
            with open_verified(self._backend, name, digest) as stream:
                while stream.read(_READ_BYTES):
                    pass
        except FileNotFoundError:
            return "missing"
        except ArtifactCorrupt:
            return "damaged"
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return "damaged"  # a bad block
        return "sound"

    def trash(self, digest: str) -> bool:
        return self._move(layout.object_name(digest), layout.trash_name(digest))

    def restore(self, digest: str) -> bool:
        trashed, target = layout.trash_name(digest), layout.object_name(digest)
        condition = self.condition(trashed, digest)
        if condition == "missing":
            return False
        if condition == "damaged":
            self._move(trashed, layout.quarantine_name(digest))
            return False
        existing = self.condition(target, digest)
        if existing == "sound":
            self._backend.remove(trashed)
            return True
        if existing == "damaged":
            self.set_aside(digest)
        return self._move(trashed, target)

    def purge(self, digest: str) -> bool:
        return self._backend.remove(layout.trash_name(digest))

    def quarantine(self, digest: str) -> None:
        """Move a damaged object out of the way, unless a writer has repaired it meanwhile."""
        taken = layout.quarantine_name(digest)
        if self._move(layout.object_name(digest), taken) and self.condition(taken, digest) == "sound":
            self._move(taken, layout.object_name(digest))

    def set_aside(self, digest: str) -> None:
        """Keep a copy of a damaged object that is about to be replaced.

        A copy, because of two writers that repair the same object: were it moved, the slower one would move
        the other's sound bytes away, and might die before it writes its own.
        """
        with contextlib.suppress(FileNotFoundError):
            self._backend.copy(layout.object_name(digest), layout.quarantine_name(digest))
        faults.hit("store.set_aside")

    def entry(self, digest: str) -> Entry | None:
        return self._backend.entry(layout.object_name(digest))

    def _move(self, source: str, target: str) -> bool:
        try:
            self._backend.move(source, target)
        except FileNotFoundError:
            return False
        return True
