"""Collections: each run of the collector, so that one works at a time and a killed one's work is finished.

The row is a lease as well: its holder renews it, and a row whose holder has gone silent may be taken over.
Every change the collector makes to rows checks, in the same transaction, that the collection is still its
own.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from sqlalchemy import Connection, Row, insert, select, update

from mutoscope.platform.catalog.clock import now
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.tables import collections
from mutoscope.platform.errors import InvalidInput, LeaseLost
from mutoscope.platform.ids import new_id

COLLECTION_SECONDS = 60.0
"""How long a collection outlives its holder before somebody else may take it over."""


COUNTS = (
    "collected",
    "collected_bytes",
    "removed",
    "removed_bytes",
    "orphans",
    "orphans_bytes",
    "restored",
    "leftovers",
)
"""What a collection counts: artifacts made tombstones, those among all tombstones whose bytes it removed for
good, bytes without a row that it moved to the trash, what it put back, writes that never ended."""


class CollectionUnderWay(InvalidInput):
    """Another process is collecting on this catalog."""


@dataclass(frozen=True, slots=True)
class CollectionRecord:
    """A row of `collections`. Times are seconds since the epoch by the database's clock; `counts` are what it
    has done so far, each thing once however often it was interrupted."""

    id: str
    state: Literal["running", "finished"]
    phase: str
    holder: str
    expires_at: float
    horizon: float
    grace_seconds: float
    counts: Mapping[str, int]
    started_at: float
    finished_at: float | None


assert [field.name for field in fields(CollectionRecord)] == list(collections.c.keys())


class Collections:
    """`catalog.collections`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(
        self, holder: str, grace_seconds: float, seconds: float = COLLECTION_SECONDS
    ) -> CollectionRecord:
        """Start a collection, or take over one whose holder has gone silent: its counts go on.

        The horizon is now either way: what a dead collector knew of the graph is out of date.

        Raises:
            CollectionUnderWay: somebody alive is at it.
        """
        with self._database.write() as connection:
            self._database.serialise(connection, "collections")
            running = connection.execute(
                select(collections).where(collections.c.state == "running").order_by(collections.c.started_at)
            ).one_or_none()
            if running is None:
                id_ = new_id()
                connection.execute(
                    insert(collections).values(
                        id=id_,
                        state="running",
                        phase="mark",
                        holder=holder,
                        expires_at=now() + float(seconds),
                        horizon=now(),
                        grace_seconds=grace_seconds,
                        counts=dict.fromkeys(COUNTS, 0),
                        started_at=now(),
                    )
                )
                return _get(connection, id_)
            taken = connection.execute(
                update(collections)
                .where(collections.c.id == running.id, collections.c.expires_at < now())
                .values(
                    holder=holder,
                    phase="mark",
                    expires_at=now() + float(seconds),
                    horizon=now(),
                    grace_seconds=grace_seconds,
                )
                .returning(collections.c.id)
            ).scalar_one_or_none()
            if taken is None:
                left = connection.execute(
                    select(collections.c.expires_at - now()).where(collections.c.id == running.id)
                ).scalar_one()
                raise CollectionUnderWay(
                    f"{running.holder} is collecting ({running.phase}): wait for it, or, if it is dead, "
                    f"try again in {max(left, 0):.0f} s"
                )
            return _get(connection, taken)

    def renew(self, id_: str, holder: str, seconds: float = COLLECTION_SECONDS) -> None:
        """Keep a collection. Raises LeaseLost when somebody has taken it over."""
        with self._database.write() as connection:
            self.require(connection, id_, holder, expires_at=now() + float(seconds))

    def enter(self, id_: str, holder: str, phase: str, *, horizon: float | None = None) -> None:
        """Note where the collection is, and from when its mark is. Raises LeaseLost."""
        values = {"phase": phase} if horizon is None else {"phase": phase, "horizon": horizon}
        with self._database.write() as connection:
            self.require(connection, id_, holder, **values)

    def add(self, id_: str, holder: str, counts: Mapping[str, int]) -> None:
        """Count what was done. Raises LeaseLost."""
        with self._database.write() as connection:
            self.require(connection, id_, holder)
            self.count(connection, id_, counts)

    def leave(self, id_: str, holder: str) -> None:
        """Let anybody take the collection over at once. Nothing happens if somebody has."""
        with self._database.write() as connection:
            connection.execute(
                update(collections)
                .where(
                    collections.c.id == id_, collections.c.holder == holder, collections.c.state == "running"
                )
                .values(expires_at=now() - 1.0)
            )

    def finish(self, id_: str, holder: str) -> CollectionRecord:
        """The collection is done. Raises LeaseLost."""
        with self._database.write() as connection:
            self.require(connection, id_, holder, state="finished", phase="done", finished_at=now())
            return _get(connection, id_)

    def list(self, limit: int = 20) -> builtins.list[CollectionRecord]:
        """Newest first."""
        query = select(collections).order_by(collections.c.started_at.desc(), collections.c.id.desc())
        with self._database.glance() as connection:
            return [_record(row) for row in connection.execute(query.limit(limit))]

    @staticmethod
    def require(connection: Connection, id_: str, holder: str, **values: Any) -> None:
        """Within a transaction: the collection is the holder's, and stays so until it commits."""
        owned = connection.execute(
            update(collections)
            .where(collections.c.id == id_, collections.c.holder == holder, collections.c.state == "running")
            .values(values or {"holder": holder})
        )
        if not owned.rowcount:
            raise LeaseLost(f"collection {id_} is not {holder}'s any more: another process has taken it over")

    @staticmethod
    def count(connection: Connection, id_: str, counts: Mapping[str, int]) -> None:
        """Within a transaction that holds the collection (`require`): add to what it has done."""
        found = connection.execute(select(collections.c.counts).where(collections.c.id == id_)).scalar_one()
        summed = {**found, **{name: found.get(name, 0) + number for name, number in counts.items()}}
        connection.execute(update(collections).where(collections.c.id == id_).values(counts=summed))


def _get(connection: Connection, id_: str) -> CollectionRecord:
    return _record(connection.execute(select(collections).where(collections.c.id == id_)).one())


def _record(row: Row[*tuple[Any, ...]]) -> CollectionRecord:
    return CollectionRecord(*row)
