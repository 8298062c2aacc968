"""What a collection would do now, without doing it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.batches import batched
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.custody.candidates import Candidate, KindTotal
from mutoscope.platform.custody.collect import BATCH
from mutoscope.platform.custody.mark import Report, mark, policy_of, silent
from mutoscope.platform.custody.users import StoreUser, users


@dataclass(frozen=True, slots=True)
class Heap:
    """So many objects, of so many bytes."""

    count: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """What would go.

    Attributes:
        kinds: totals of what nothing keeps, by kind, largest first.
        largest: the largest of it.
        replayable: what of it could be made again, in the order of collection: most bytes per second of
            computing first.
        orphans: bytes without a row, old enough to go.
        trash: what lies in the trash already.
        removable: of that, what has been there for longer than the grace period: it would be gone for good.
        strangers: registered catalogs that were not given; a collection would refuse.
    """

    kinds: Sequence[KindTotal]
    largest: Sequence[Candidate]
    replayable: Sequence[Candidate]
    orphans: Heap
    trash: Heap
    removable: Heap
    strangers: Sequence[StoreUser]

    @property
    def total(self) -> Heap:
        """All that would become tombstones."""
        return Heap(sum(kind.count for kind in self.kinds), sum(kind.size for kind in self.kinds))


def plan(
    catalog: Catalog,
    store: ArtifactStore,
    grace_seconds: float,
    *,
    also: Sequence[Catalog] = (),
    shown: int = 10,
    report: Report = silent,
) -> Plan:
    """Look, and change nothing.

    Args:
        shown: how many artifacts the lists hold.
    """
    known = {other.identity() for other in (catalog, *also)}
    with closing(mark(catalog, policy_of(catalog), report)) as found:
        return Plan(
            found.by_kind(),
            found.largest(shown),
            found.replayable(shown),
            _orphans((catalog, *also), store, catalog.reachability.now() - grace_seconds, report),
            *_trash((catalog, *also), store, grace_seconds, report),
            [user for user in users(store) if user.id not in known],
        )


def _orphans(catalogs: Sequence[Catalog], store: ArtifactStore, before: float, report: Report) -> Heap:
    """By the database's clock: for a preview, near enough to the store's."""
    count = size = done = 0
    for batch in batched(store.inventory(), BATCH):
        old = {item.digest: item.size for item in batch if item.modified < before}
        for catalog in catalogs:
            for digest in catalog.tombstones.states(list(old)):
                del old[digest]
        count, size, done = count + len(old), size + sum(old.values()), done + len(batch)
        report("strays", done, 0)
    return Heap(count, size)


def _trash(
    catalogs: Sequence[Catalog], store: ArtifactStore, grace_seconds: float, report: Report
) -> tuple[Heap, Heap]:
    """What lies in the trash, and what of it no catalog holds back any more."""
    count = size = old_count = old_size = 0
    before = catalogs[0].reachability.now() - grace_seconds
    for batch in batched(store.trashed(), BATCH):
        digests = [item.digest for item in batch]
        known = {digest for catalog in catalogs for digest in catalog.tombstones.states(digests)}
        young = {
            digest for catalog in catalogs for digest in catalog.tombstones.unready(digests, grace_seconds)
        }
        young |= {item.digest for item in batch if item.digest not in known and item.modified >= before}
        old = [item.size for item in batch if item.digest not in young]
        count, size = count + len(batch), size + sum(item.size for item in batch)
        old_count, old_size = old_count + len(old), old_size + sum(old)
        report("trash", count, 0)
    return Heap(count, size), Heap(old_count, old_size)
