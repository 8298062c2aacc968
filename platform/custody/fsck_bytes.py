"""Rows against bytes, both ways: what is missing, damaged, misplaced or left over.

The store is listed first and the rows are read afterwards, while writers go on. Bytes are stored before
their row and a row becomes a tombstone before its bytes move, so a sound pair can look unsound only for a
moment: each suspect is looked at again, row and bytes, before it counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.artifacts.manifest import KIND as MANIFEST_KIND
from mutoscope.platform.batches import batched
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.catalog.audit import Holding
from mutoscope.platform.custody.fsck_findings import Finding, finding
from mutoscope.platform.custody.fsck_inventory import Inventory, Listed
from mutoscope.platform.errors import ArtifactMissing

GRACE_SECONDS = 3600.0
"""Bytes without a row are no orphan before that: their writer may be about to record them."""

_BATCH = 500
_READ_BATCH = 50
"""Objects read before the suspects among them are looked at again, and told."""

ANYONE_MAY_WRITE = 0o222


@dataclass(slots=True)
class Tally:
    """How far a check has come; the totals are known once the store is listed."""

    phase: str = "listing"
    objects: int = 0
    bytes: int = 0
    listed: int = 0
    listed_bytes: int = 0
    rows: int = 0
    fresh: int = 0
    """Objects without a row that are too young to be called orphans."""


@dataclass(frozen=True, slots=True)
class Pair:
    """What both sides say of a digest; at least one of them knows it."""

    digest: str
    row: Holding | None
    listed: Listed | None


@dataclass(slots=True)
class ByteCheck:
    """One pass over a store and its rows.

    Attributes:
        deep: read every object and compare its digest; else manifests alone, and look at presence and size.
        watch: called often with the tally; must return at once.
    """

    catalog: Catalog
    store: ArtifactStore
    deep: bool
    watch: Callable[[Tally], None] = lambda tally: None
    tally: Tally = field(default_factory=Tally)

    def findings(self) -> Iterator[Finding]:
        """Everything that is wrong between rows and bytes."""
        with self._listed() as inventory:
            self.tally.listed, self.tally.listed_bytes = inventory.count, inventory.bytes
            self.tally.phase = "reading" if self.deep else "comparing"
            size = _READ_BATCH if self.deep else _BATCH
            for batch in batched(paired(self.catalog.audit.artifacts(), inventory), size):
                yield from self._judge(batch)
        self.tally.phase = "trash"
        yield from self._trash()
        yield from self._quarantine()
        for path in self.store.foreign():
            yield finding("foreign-file", path)

    def _listed(self) -> Inventory:
        def progress(count: int) -> None:
            self.tally.listed = count
            self.watch(self.tally)

        return Inventory(
            (Listed(found.digest, found.size, found.modified) for found in self.store.inventory()), progress
        )

    def _judge(self, batch: list[Pair]) -> Iterator[Finding]:
        """The findings of a batch: its suspects, looked at again with the row as it is now."""
        suspects = [pair for pair in batch if self._suspicious(pair)]
        self.watch(self.tally)
        standing = self.catalog.audit.standing(pair.digest for pair in suspects)
        for pair in suspects:
            row = standing.get(pair.digest)
            found = self._unrecorded(pair) if row is None else self._recorded(row)
            if found is not None:
                yield found

    def _suspicious(self, pair: Pair) -> bool:
        row, listed = pair.row, pair.listed
        self.tally.rows += row is not None
        if listed is None:
            return row is not None and row.present
        self.tally.objects += 1
        if row is None or not row.present or row.size != listed.size:
            return True
        if self._writable(pair.digest):
            return True
        if not self.deep:
            # Manifests are small, and without one its members are nothing.
            return row.kind == MANIFEST_KIND and self.store.verify(pair.digest) != "sound"
        sound = self.store.verify(pair.digest) == "sound"
        self.tally.bytes += listed.size
        self.watch(self.tally)
        return not sound

    def _unrecorded(self, pair: Pair) -> Finding | None:
        if pair.listed is None or not self.store.contains(pair.digest):
            return None
        if time.time() - pair.listed.modified < GRACE_SECONDS:
            self.tally.fresh += 1
            return None
        return finding("orphan", pair.digest[:12], pair.digest, size=pair.listed.size)

    def _recorded(self, row: Holding) -> Finding | None:
        """Row and bytes again, a moment later. The bytes of a suspect are read whatever was asked for."""
        name, digest = str(row), row.digest
        condition = self.store.verify(digest)
        if not row.present:
            if condition != "sound":
                return None
            code = "found-bytes" if row.lost else "collected-bytes"
            return finding(code, name, digest, size=row.size)
        if condition == "damaged":
            return finding("damaged-bytes", name, digest, size=row.size)
        if condition == "missing":
            return self._absent(row)
        try:
            size = self.store.size(digest)
        except ArtifactMissing:
            return self._absent(row)
        if size != row.size:
            return finding("wrong-size", name, digest, detail=f"{row.size} instead of {size} bytes")
        if self._writable(digest):
            return finding("writable-object", name, digest)
        return None

    def _absent(self, row: Holding) -> Finding | None:
        now = self.catalog.audit.standing([row.digest]).get(row.digest)
        if now is None or not now.present:
            return None  # collected while we looked
        code = "trashed-bytes" if self.store.is_trashed(row.digest) else "missing-bytes"
        return finding(code, str(row), row.digest, size=row.size)

    def _trash(self) -> Iterator[Finding]:
        """Second copies. What is in the trash alone has been found from its row."""
        for batch in batched(self.store.trashed(), _BATCH):
            standing = self.catalog.audit.standing(found.digest for found in batch)
            for found in batch:
                row = standing.get(found.digest)
                if row is not None and row.present and self.store.contains(found.digest):
                    yield finding("spare-copy", str(row), found.digest, size=found.size)

    def _quarantine(self) -> Iterator[Finding]:
        for found in self.store.quarantined():
            again = "sound again since" if self.store.contains(found.digest) else "not made again since"
            subject = f"quarantine/{found.digest[:12]}…"
            yield finding("quarantined", subject, found.digest, detail=again, size=found.size)

    def _writable(self, digest: str) -> bool:
        path = self.store.object_path(digest)
        try:
            return path is not None and bool(path.stat().st_mode & ANYONE_MAY_WRITE)
        except FileNotFoundError:
            return False


def paired(rows: Iterable[Holding], listed: Iterable[Listed]) -> Iterator[Pair]:
    """Both sides side by side, each sorted by digest."""
    left, right = iter(rows), iter(listed)
    row, found = next(left, None), next(right, None)
    while row is not None or found is not None:
        if found is None or (row is not None and row.digest < found.digest):
            assert row is not None
            yield Pair(row.digest, row, None)
            row = next(left, None)
        elif row is None or found.digest < row.digest:
            yield Pair(found.digest, None, found)
            found = next(right, None)
        else:
            yield Pair(row.digest, row, found)
            row, found = next(left, None), next(right, None)
