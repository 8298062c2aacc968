"""Collecting and reviving, as rows: each step of the collector is one transaction here.

The order of things, so that a kill between any two loses nothing:

    1. bury     the row becomes a tombstone, if nothing keeps it now. Its bytes are still in objects/
    2.          (the bytes go to the trash)
    3. settle   `collected_at` is set: from this moment no writer can find the bytes in objects/. A row that
                somebody has recorded, referred to or had from the memo since step 1 is present again, and its
                bytes go back
    4. judge    for what lies in the trash: put back, remove for good, or leave. What is to be removed is
                marked and counted before the bytes go
    5.          (the bytes are removed)

A writer may have found the bytes in objects/ before step 2, stored nothing, and record the row after step 3.
That is why nothing is removed in step 4 while a writer is active that began before `collected_at`: when the
last of them is done, whatever they relied on has a row again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, ScalarSelect, case, func, or_, select, union_all, update

from mutoscope.platform.catalog.artifacts import REF_COLUMNS, to_ref
from mutoscope.platform.catalog.clock import now
from mutoscope.platform.catalog.collections import CollectionRecord, Collections
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.keeping import (
    is_called,
    is_member,
    is_wanted,
    leased,
    old_before,
    stays,
)
from mutoscope.platform.catalog.members import held_by
from mutoscope.platform.catalog.retention import Policy
from mutoscope.platform.catalog.tables import (
    artifacts,
    calls,
    in_flight,
    in_force,
    leases,
    pins,
    runs,
    under_way,
    workflow_runs,
)
from mutoscope.platform.errors import CatalogError, UnknownReference
from mutoscope.platform.refs import ArtifactRef

_DEAD_RUN_SECONDS = 86_400.0
"""A run whose lease ran out this long ago has no worker that could still record anything."""
_DEAD_WORKFLOW_SECONDS = 30 * 86_400.0
"""A workflow run that has been open for this long lost its process without anybody noticing."""


class MarkOutdated(CatalogError):
    """A pin with inputs was set since the mark: what it keeps is not known yet."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to become of trashed artifacts.

    Attributes:
        restore: their rows are present: the bytes belong in objects/.
        remove: marked as removed for good; their bytes may go now.
        wait: their time has not come, or somebody may still need them.
        unknown: without a row.
    """

    restore: list[str]
    remove: list[str]
    wait: list[str]
    unknown: list[str]


class Tombstones:
    """`catalog.tombstones`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def bury(
        self, collection: CollectionRecord, holder: str, policy: Policy, digests: Sequence[str]
    ) -> list[str]:
        """Make tombstones of those artifacts that nothing keeps at this moment; returns them.

        Raises:
            MarkOutdated: mark again.
            LeaseLost: the collection is somebody else's by now.
        """
        with self._database.write(at_leisure=True) as connection:
            Collections.require(connection, collection.id, holder)
            locked = _lock(connection, digests)
            newer = select(pins.c.id).where(pins.c.with_inputs, pins.c.created_at >= policy.horizon).limit(1)
            if connection.execute(newer).first() is not None:
                raise MarkOutdated("a pin with inputs was set during the mark: mark again")
            free = _free(connection, policy, locked)
            buried = connection.execute(
                update(artifacts)
                .where(artifacts.c.digest.in_(free), artifacts.c.state == "present")
                .values(state="tombstone", collected_at=None, purged_at=None)
                .returning(artifacts.c.digest, artifacts.c.size)
            ).all()
            counts = {"collected": len(buried), "collected_bytes": sum(row.size for row in buried)}
            Collections.count(connection, collection.id, counts)
        return [row.digest for row in buried]

    def settle(self, collection: CollectionRecord, holder: str, digests: Sequence[str]) -> list[str]:
        """Note that the bytes have left objects/; returns those that must go back: present again, or referred
        to."""
        with self._database.write(at_leisure=True) as connection:
            Collections.require(connection, collection.id, holder)
            locked = _lock(connection, digests)
            _revive_wanted(connection, locked, collection.started_at)
            settled = connection.execute(
                update(artifacts)
                .where(artifacts.c.digest.in_(locked), artifacts.c.state == "tombstone")
                .values(collected_at=now(), purged_at=None)
                .returning(artifacts.c.digest)
            )
            waiting = set(settled.scalars())
            return [digest for digest in digests if digest not in waiting]

    def unsettle(self, collection: CollectionRecord, holder: str, digests: Sequence[str]) -> list[str]:
        """Before bytes that a tombstone has in objects/ go to the trash (again): since when they are there is
        open. Returns the tombstones among the artifacts, without those that somebody is reading."""
        with self._database.write(at_leisure=True) as connection:
            Collections.require(connection, collection.id, holder)
            return list(
                connection.execute(
                    update(artifacts)
                    .where(artifacts.c.digest.in_(_lock(connection, digests)))
                    .where(artifacts.c.state == "tombstone", artifacts.c.digest.not_in(leased()))
                    .values(collected_at=None, purged_at=None)
                    .returning(artifacts.c.digest)
                ).scalars()
            )

    def judge(
        self,
        collection: CollectionRecord,
        holder: str,
        digests: Sequence[str],
        grace_seconds: float,
        writing_elsewhere: float = 0.0,
    ) -> Verdict:
        """Decide about artifacts whose bytes lie in the trash. What is to be removed is counted here.

        Args:
            writing_elsewhere: seconds for which somebody has been writing to the store whom this catalog
                does not know.
        """
        with self._database.write(at_leisure=True) as connection:
            Collections.require(connection, collection.id, holder)
            locked = _lock(connection, digests)
            _revive_wanted(connection, locked, collection.started_at)
            # A collector that was killed between trash and settle left the time open: it begins now.
            connection.execute(
                update(artifacts)
                .where(artifacts.c.digest.in_(locked), artifacts.c.state == "tombstone")
                .where(artifacts.c.collected_at.is_(None))
                .values(collected_at=now())
            )
            verdict = _verdict(connection, digests, set(locked), grace_seconds, writing_elsewhere)
            removed = connection.execute(
                update(artifacts)
                .where(artifacts.c.digest.in_(verdict.remove), artifacts.c.purged_at.is_(None))
                .values(purged_at=now())
                .returning(artifacts.c.size)
            ).scalars()
            sizes = list(removed)
            Collections.count(connection, collection.id, {"removed": len(sizes), "removed_bytes": sum(sizes)})
        return verdict

    def revive(self, digest: str) -> bool:
        """The bytes are back in objects/: the row is present again, as if made now. False if it was all
        along."""
        with self._database.write(at_leisure=True) as connection:
            revived = connection.execute(
                update(artifacts)
                .where(artifacts.c.digest == digest, artifacts.c.state == "tombstone")
                .values(state="present", created_at=now())
            )
        return bool(revived.rowcount)

    def references(self, digests: Sequence[str]) -> dict[str, ArtifactRef]:
        """The references of those that have a row."""
        query = select(*REF_COLUMNS).where(artifacts.c.digest.in_(digests))
        with self._database.glance() as connection:
            return {row.digest: to_ref(row) for row in connection.execute(query)}

    def with_members(self, digest: str) -> list[ArtifactRef]:
        """The artifact, and everything it cannot be read without. Raises UnknownReference."""
        known = self.references([digest])
        if digest not in known:
            raise UnknownReference(f"no artifact has the digest {digest!r}: `mutoscope ls` lists them")
        with self._database.read() as connection:
            return [known[digest], *held_by(connection, [digest])]

    def states(self, digests: Sequence[str]) -> dict[str, str]:
        """``present`` or ``tombstone`` of those that have a row."""
        query = select(artifacts.c.digest, artifacts.c.state).where(artifacts.c.digest.in_(digests))
        with self._database.glance() as connection:
            return {row.digest: row.state for row in connection.execute(query)}

    def unready(self, digests: Sequence[str], grace_seconds: float) -> set[str]:
        """Those that this catalog, asked on behalf of another that shares its store, still needs: present, or
        collected too short a time ago."""
        query = select(artifacts.c.digest).where(
            artifacts.c.digest.in_(digests),
            or_(
                artifacts.c.state == "present",
                artifacts.c.collected_at.is_(None),
                artifacts.c.collected_at > now() - float(grace_seconds),
            ),
        )
        with self._database.glance() as connection:
            return set(connection.execute(query).scalars())

    def writer_age(self) -> float | None:
        """Seconds since the longest active writer began; None when nobody is writing."""
        with self._database.glance() as connection:
            age = connection.execute(select(now() - _oldest_writer())).scalar_one()
        return None if age is None else float(age)


def _lock(connection: Connection, digests: Sequence[str]) -> list[str]:
    """Lock these rows. One that a writer holds is passed over: it is in use, and waiting for it could close a
    circle of waits."""
    query = (
        select(artifacts.c.digest)
        .where(artifacts.c.digest.in_(digests))
        .order_by(artifacts.c.digest)
        .with_for_update(skip_locked=True)
    )
    return list(connection.execute(query).scalars())


def _free(connection: Connection, policy: Policy, digests: Sequence[str]) -> list[str]:
    subject = (
        select(artifacts.c.digest, artifacts.c.created_at, old_before(policy).label("old_before"))
        .where(artifacts.c.digest.in_(digests), artifacts.c.state == "present")
        .subquery("subject")
    )
    query = select(subject.c.digest).where(~stays(subject), ~is_member(subject.c.digest))
    return list(connection.execute(query).scalars())


def _revive_wanted(connection: Connection, digests: Sequence[str], buried_after: float) -> None:
    """Tombstones that something refers to again, or that the memo has handed out since, are tombstones no
    more. Those whose bytes are gone stay what they are."""
    buried = func.coalesce(artifacts.c.collected_at, float(buried_after))
    connection.execute(
        update(artifacts)
        .where(
            artifacts.c.digest.in_(digests),
            artifacts.c.state == "tombstone",
            artifacts.c.purged_at.is_(None),
            or_(
                is_wanted(artifacts.c.digest),
                is_member(artifacts.c.digest),
                is_called(artifacts.c.digest, calls.c.created_at >= buried),
            ),
        )
        .values(state="present", created_at=now())
    )


def _verdict(
    connection: Connection,
    digests: Sequence[str],
    locked: set[str],
    grace_seconds: float,
    writing_elsewhere: float,
) -> Verdict:
    oldest = _oldest_writer()
    age = now() - artifacts.c.collected_at
    due = case(
        (artifacts.c.state == "present", "restore"),
        (artifacts.c.purged_at.is_not(None), "remove"),
        (age < max(float(grace_seconds), float(writing_elsewhere)), "wait"),
        (artifacts.c.collected_at >= func.coalesce(oldest, artifacts.c.collected_at + 1), "wait"),
        (artifacts.c.digest.in_(leased()), "wait"),
        else_="remove",
    )
    query = select(artifacts.c.digest, due.label("due"))
    rows = connection.execute(query.where(artifacts.c.digest.in_(digests))).all()
    found: dict[str, list[str]] = {"restore": [], "remove": [], "wait": []}
    for row in rows:
        found[row.due if row.digest in locked else "wait"].append(row.digest)
    known = {row.digest for row in rows}
    return Verdict(**found, unknown=[digest for digest in digests if digest not in known])


def _oldest_writer() -> ScalarSelect[Any]:
    """When the longest active writer began: a run being computed, a writer's lease, a workflow under way
    (which may hold what the memo gave it and has referred to it nowhere yet)."""
    began = union_all(
        select(func.min(runs.c.started_at).label("began")).where(
            in_flight, runs.c.state == "running", runs.c.lease_expires_at > now() - _DEAD_RUN_SECONDS
        ),
        select(func.min(leases.c.started_at)).where(leases.c.kind == "writer", in_force),
        select(func.min(workflow_runs.c.created_at)).where(
            under_way, workflow_runs.c.created_at > now() - _DEAD_WORKFLOW_SECONDS
        ),
    ).subquery("writers")
    return select(func.min(began.c.began)).scalar_subquery()
