"""The collector: what nothing keeps goes to the trash, and after a period of grace for good.

    mark      which artifacts may go (`mark`); reads only
    sweep     in batches, best first: tombstone → trash → look again
    strays    bytes in objects/ that no present row explains: left by a killed collector or writer
    empty     the trash: put back what is wanted, remove what has waited long enough
    leftovers writes that never ended

It may be killed anywhere. Whatever it had not finished, the next one does: a tombstone with bytes is a stray,
bytes in the trash are looked at again, and what is counted is counted in the transaction that decides it.
Writers and readers go on meanwhile; `catalog.tombstones` says why they lose nothing.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from mutoscope.platform import faults
from mutoscope.platform.artifacts import ArtifactStore, StoredObject
from mutoscope.platform.batches import batched
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.catalog.collections import COLLECTION_SECONDS, CollectionRecord
from mutoscope.platform.catalog.leases import Renewal
from mutoscope.platform.catalog.retention import Policy
from mutoscope.platform.catalog.tombstones import MarkOutdated
from mutoscope.platform.custody.candidates import Candidates
from mutoscope.platform.custody.mark import Report, mark, policy_of, silent
from mutoscope.platform.custody.users import announce, require_all
from mutoscope.platform.ids import new_id

BATCH = 500
"""Artifacts per transaction: some milliseconds of the catalog's write lock."""
_MOVERS = 8
"""Moves under way at a time: on a remote store each waits for the network."""
_LEFTOVER_SECONDS = 86_400.0
"""A write that has been under way for longer has no writer any more, whatever the grace period."""
_SLACK_SECONDS = 2.0
"""Stores keep times to the second."""
_BETWEEN_CATALOGS_SECONDS = 60.0
"""What is asked of several databases is not asked at one moment."""


class Collector:
    """One catalog and its store.

    Args:
        also: the other catalogs that use the store; see `users`. What they need is kept.
        report: told of progress.
        at: told when a named point is passed, as `faults.hit` is.
        lease_seconds: how long the collection outlives this process before another may take it over.
    """

    def __init__(
        self,
        catalog: Catalog,
        store: ArtifactStore,
        *,
        also: Sequence[Catalog] = (),
        report: Report = silent,
        at: Callable[[str], None] = faults.hit,
        lease_seconds: float = COLLECTION_SECONDS,
    ) -> None:
        self._catalog, self._store, self._also = catalog, store, tuple(also)
        self._report, self._at, self._lease_seconds = report, at, lease_seconds
        self._holder = f"{socket.gethostname()}:{os.getpid()} {new_id()}"

    def collect(self, grace_seconds: float) -> CollectionRecord:
        """Collect, or finish what a killed collector began; returns what was done.

        Args:
            grace_seconds: how long what was collected can still be brought back.

        Raises:
            CollectionUnderWay: somebody else is at it.
            SharedStore: another catalog uses the store and was not given.
            StoreUnwritable: the store refuses.
            LeaseLost: this process stood still for so long that another has taken over.
        """
        return self._run(grace_seconds, (self._sweep, self._strays, self._empty, self._leftovers))

    def empty(self, grace_seconds: float) -> CollectionRecord:
        """Only remove from the trash what has been there for longer, and put back what is wanted. Raises as
        `collect`."""
        return self._run(grace_seconds, (self._empty,))

    def _run(
        self, grace_seconds: float, phases: Sequence[Callable[[CollectionRecord, float], None]]
    ) -> CollectionRecord:
        require_all(self._store, (self._catalog, *self._also))
        collections, lease = self._catalog.collections, self._lease_seconds
        record = collections.begin(self._holder, grace_seconds, lease)
        renewal = Renewal(lambda: collections.renew(record.id, self._holder, lease), lease / 3)
        try:
            with renewal:
                clock = announce(self._catalog, self._store)
                for phase in phases:
                    collections.enter(record.id, self._holder, phase.__name__.strip("_"))
                    phase(record, clock)
            return collections.finish(record.id, self._holder)
        except BaseException:
            collections.leave(record.id, self._holder)
            raise

    # Sweep

    def _sweep(self, record: CollectionRecord, clock: float) -> None:
        while True:
            policy = policy_of(self._catalog)
            self._catalog.collections.enter(record.id, self._holder, "mark", horizon=policy.horizon)
            with closing(mark(self._catalog, policy, self._report)) as found:
                self._at("gc.after_mark")
                self._catalog.collections.enter(record.id, self._holder, "sweep")
                try:
                    return self._bury(record, found, policy)
                except MarkOutdated:
                    continue

    def _bury(self, record: CollectionRecord, found: Candidates, policy: Policy) -> None:
        total, done = sum(kind.count for kind in found.by_kind()), 0
        for batch in found.batches(BATCH):
            buried = self._catalog.tombstones.bury(record, self._holder, policy, batch)
            self._at("gc.after_tombstone")
            self._discard(record, buried)
            done += len(batch)
            self._report("sweep", done, total)

    def _discard(self, record: CollectionRecord, digests: Sequence[str]) -> None:
        """Tombstones' bytes to the trash; those of rows that came back meanwhile to where they were."""
        elsewhere = self._present_elsewhere(digests)
        _each(self._trash, (digest for digest in digests if digest not in elsewhere))
        self._at("gc.after_trash")
        back = self._catalog.tombstones.settle(record, self._holder, digests)
        self._at("gc.after_settle")
        _each(self._store.restore, back)

    def _trash(self, digest: str) -> bool:
        self._at("gc.trash")
        return self._store.trash(digest)

    # Strays

    def _strays(self, record: CollectionRecord, clock: float) -> None:
        done = 0
        for batch in batched(self._store.inventory(), BATCH):
            # Before the rows are read: a writer that ends in between has recorded by then.
            writing = self._writing()
            digests = [stored.digest for stored in batch]
            states = self._catalog.tombstones.states(digests)
            tombstones = [digest for digest in digests if states.get(digest) == "tombstone"]
            if tombstones:
                self._discard(record, self._catalog.tombstones.unsettle(record, self._holder, tombstones))
            patience = max(record.grace_seconds, writing + _SLACK_SECONDS)
            orphans = {
                stored.digest: stored.size
                for stored in batch
                if stored.digest not in states and clock - stored.modified > patience
            }
            self._discard_orphans(record, orphans)
            done += len(batch)
            self._report("strays", done, 0)

    def _discard_orphans(self, record: CollectionRecord, orphans: dict[str, int]) -> None:
        known = self._known_elsewhere(list(orphans))
        gone = [digest for digest in orphans if digest not in known and self._trash(digest)]
        if gone:
            states = self._catalog.tombstones.states(gone)
            _each(self._store.restore, (digest for digest in gone if states.get(digest) == "present"))
            size = sum(orphans[digest] for digest in gone)
            counts = {"orphans": len(gone), "orphans_bytes": size}
            self._catalog.collections.add(record.id, self._holder, counts)

    # Trash

    def _empty(self, record: CollectionRecord, clock: float) -> None:
        require_all(self._store, (self._catalog, *self._also))
        done = 0
        for batch in batched(self._store.trashed(), BATCH):
            self._judge(record, clock, {stored.digest: stored for stored in batch})
            done += len(batch)
            self._report("trash", done, 0)

    def _judge(self, record: CollectionRecord, clock: float, trashed: dict[str, StoredObject]) -> None:
        grace = record.grace_seconds
        writing = self._writing()
        elsewhere = self._present_elsewhere(list(trashed))
        unready = {
            digest for other in self._also for digest in other.tombstones.unready(list(trashed), grace)
        }
        ours = [digest for digest in trashed if digest not in unready]
        verdict = self._catalog.tombstones.judge(record, self._holder, ours, grace, self._writing_elsewhere())
        _each(self._store.restore, [*verdict.restore, *elsewhere])
        self._at("gc.before_purge")
        _each(self._store.purge, verdict.remove)
        self._at("gc.after_purge")
        patience = max(grace, writing + _SLACK_SECONDS)
        aged = [digest for digest in verdict.unknown if clock - trashed[digest].modified > patience]
        _each(self._store.purge, aged)
        counts = {
            "restored": len(verdict.restore) + len(elsewhere),
            "removed": len(aged),
            "removed_bytes": sum(trashed[digest].size for digest in aged),
        }
        self._catalog.collections.add(record.id, self._holder, counts)

    def _leftovers(self, record: CollectionRecord, clock: float) -> None:
        count = self._store.discard_unfinished(clock - max(record.grace_seconds, _LEFTOVER_SECONDS))
        self._catalog.collections.add(record.id, self._holder, {"leftovers": count})

    # The others

    def _present_elsewhere(self, digests: Sequence[str]) -> set[str]:
        return {
            digest
            for other in self._also
            for digest, state in other.tombstones.states(digests).items()
            if state == "present"
        }

    def _known_elsewhere(self, digests: Sequence[str]) -> set[str]:
        return {digest for other in self._also for digest in other.tombstones.states(digests)}

    def _writing(self) -> float:
        """For how many seconds somebody has been writing to the store; 0 when nobody is."""
        return max(self._catalog.tombstones.writer_age() or 0.0, self._writing_elsewhere())

    def _writing_elsewhere(self) -> float:
        ages = [age for other in self._also if (age := other.tombstones.writer_age()) is not None]
        return max(ages) + _BETWEEN_CATALOGS_SECONDS if ages else 0.0


def _each(move: Callable[[str], bool], digests: Iterable[str]) -> None:
    """Move each, several at a time; the first failure is raised when those under way have ended."""
    with ThreadPoolExecutor(_MOVERS, thread_name_prefix="collector") as movers:
        for _ in movers.map(move, digests):
            pass
