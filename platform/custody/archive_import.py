"""Import: an archive's bytes and rows into this home, merged by digest and by id.

In this order, so that a kill anywhere leaves at most bytes without rows, which the next import takes up and a
collection would remove:

1. the archive is checked from end to end, and read as nothing but data;
2. its rows are entered and taken back, which finds every contradiction before a byte is stored;
3. its bytes are stored;
4. its rows are entered, in one transaction.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from mutoscope.platform import faults
from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.catalog.bulk import ArtifactRow, Member
from mutoscope.platform.catalog.calls import Call
from mutoscope.platform.catalog.graph import Edge
from mutoscope.platform.catalog.incidents import Incident
from mutoscope.platform.catalog.merge import Merged
from mutoscope.platform.catalog.records import RunRecord
from mutoscope.platform.catalog.transfer import Alias
from mutoscope.platform.catalog.weights import WeightVersion
from mutoscope.platform.catalog.workflows import WorkflowRecord
from mutoscope.platform.custody.archive_format import ArtifactLine, Manifest
from mutoscope.platform.custody.archive_reader import ArchiveReader, Progress
from mutoscope.platform.custody.users import register
from mutoscope.platform.errors import ArchiveInvalid
from mutoscope.platform.refs import ArtifactRef

_SMALL = 2 << 20
_HANDS = 8
"""Objects up to `_SMALL` bytes are stored `_HANDS` at a time, twice as many being in memory; larger ones one
by one, as streams."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did, or would do.

    Attributes:
        stored, stored_bytes: objects that were not in the store.
    """

    manifest: Manifest
    merged: Merged
    stored: int
    stored_bytes: int
    dry_run: bool

    @property
    def changed(self) -> bool:
        return self.merged.changed or self.stored > 0


def import_archive(
    catalog: Catalog,
    store: ArtifactStore,
    path: Path,
    *,
    alias: str | None = None,
    dry_run: bool = False,
    progress: Progress = lambda done, total: None,
) -> Imported:
    """Bring an archive into this home. Importing it again changes nothing.

    Args:
        alias: point this alias of the components to where it pointed when the archive was written; other
            aliases stay.
        dry_run: check everything, and say what would change.

    Raises:
        ArchiveInvalid: the file is damaged, incomplete, of another format, or holds what none of ours does.
        CatalogError: its rows contradict rows that are here.
        StoreUnwritable: the store refuses.
        UnknownReference: no version in the archive has that alias.
    """
    with ArchiveReader.open(path, progress) as archive:
        arrivals = _Arrivals(archive)
        planned = catalog.transfer.merge(arrivals, alias=alias, rehearse=True)
        faults.hit("import.verified")
        if dry_run:
            missing = [member for digest, member in archive.objects.items() if not store.contains(digest)]
            size = sum(member.size for member in missing)
            return Imported(archive.manifest, planned, len(missing), size, dry_run=True)
        store.check_writable()
        register(catalog, store)
        with catalog.leases.writing(f"import of {path.name}"):
            stored, stored_bytes = _store_objects(store, archive, progress)
            faults.hit("import.before_rows")
            merged = catalog.transfer.merge(
                arrivals, alias=alias, before_commit=lambda: faults.hit("import.rows")
            )
            faults.hit("import.after_rows")
        return Imported(archive.manifest, merged, stored, stored_bytes, dry_run=False)


def _store_objects(store: ArtifactStore, archive: ArchiveReader, progress: Progress) -> tuple[int, int]:
    """Objects and bytes that were not there. Small ones go several at a time: over a network each costs a
    round trip, and little else."""
    count = size = done = 0
    total = sum(member.size for member in archive.objects.values())
    under_way: deque[tuple[int, Future[bool]]] = deque()
    with ThreadPoolExecutor(_HANDS, thread_name_prefix="archive-import") as hands:

        def settle(at_most: int) -> None:
            nonlocal count, size, done
            while len(under_way) > at_most:
                length, outcome = under_way.popleft()
                if outcome.result():
                    count, size = count + 1, size + length
                done += length
                progress(done, total)

        for row in archive.rows("artifacts"):
            ref = cast(ArtifactLine, row).ref
            if ref.digest not in archive.objects:
                continue
            if ref.size > _SMALL:  # whose upload is busy with its own parts
                settle(0)
            under_way.append((ref.size, hands.submit(_store_object, store, archive, ref)))
            settle(0 if ref.size > _SMALL else 2 * _HANDS)
        settle(0)
    return count, size


def _store_object(store: ArtifactStore, archive: ArchiveReader, ref: ArtifactRef) -> bool:
    """Whether the object was new. A small one is put in any case: the store compares it with what it has, and
    repairs damage."""
    there = store.contains(ref)
    if not there or ref.size <= _SMALL:
        chunks = archive.read(ref.digest)
        source = b"".join(chunks) if ref.size <= _SMALL else chunks
        put = store.put(source, kind=ref.kind, media_type=ref.media_type, meta=ref.meta)
        if put.digest != ref.digest:
            raise ArchiveInvalid("it changed while it was read: do not write it meanwhile")
    if not there:
        faults.hit("import.object")
    return not there


class _Arrivals:
    """The archive's rows as the catalog takes them: `Arrivals`."""

    def __init__(self, archive: ArchiveReader) -> None:
        self._archive = archive

    def artifacts(self) -> Iterator[ArtifactRow]:
        """What has no bytes here arrives as a tombstone, unless it is here already."""
        for row in self._archive.rows("artifacts"):
            line = cast(ArtifactLine, row)
            yield ArtifactRow(line.ref, line.created_at, line.bytes == "archived")

    def members(self) -> Iterator[Member]:
        return self._rows("members")

    def workflow_runs(self) -> Iterator[WorkflowRecord]:
        return self._rows("workflow_runs")

    def runs(self) -> Iterator[RunRecord]:
        return self._rows("runs")

    def edges(self) -> Iterator[Edge]:
        return self._rows("edges")

    def calls(self) -> Iterator[Call]:
        return self._rows("calls")

    def weight_versions(self) -> Iterator[WeightVersion]:
        return self._rows("weight_versions")

    def weight_aliases(self) -> Iterator[Alias]:
        return self._rows("weight_aliases")

    def incidents(self) -> Iterator[Incident]:
        return self._rows("incidents")

    def _rows(self, table: str) -> Iterator[Any]:
        return self._archive.rows(table)
