"""Workers: who serves which card, and whether they are still there."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import bindparam, select, update

from mutoscope.platform.catalog.clock import now
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.tables import workers
from mutoscope.platform.errors import UnknownReference

STOPPED = "stopped"

ALIVE_SECONDS = 15.0
"""A worker whose last heartbeat is older than this is taken for dead, unless the caller says otherwise."""


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """What a worker says of itself.

    Attributes:
        id: drawn per process.
        cards: card id to {"card_digest", "contract" (numeric contract, a mapping, for runs to be planned
            with), "contract_digest", "also_kept" (digests of further contracts it can keep), "weights"
            (resident component to digest), "features" (what its cache of node results did)}. A worker that is
            starting may not know its contract yet.
        state: ``starting``, ``ready``, ``draining`` or ``stopped``; ``idle`` if the worker does not say.
        started_at, heartbeat_at: seconds since the epoch; filled by the catalog.
        age: seconds since the last heartbeat, by the database's clock; filled by the catalog.
    """

    id: str
    host: str
    pid: int
    device: str
    cards: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    state: str = "idle"
    started_at: float | None = None
    heartbeat_at: float | None = None
    age: float | None = None

    def alive(self, within_seconds: float = ALIVE_SECONDS) -> bool:
        """Not stopped, and heard of recently."""
        return self.state != STOPPED and self.age is not None and self.age <= within_seconds


_COLUMNS = (
    workers.c.id,
    workers.c.host,
    workers.c.pid,
    workers.c.device,
    workers.c.cards,
    workers.c.state,
    workers.c.started_at,
    workers.c.heartbeat_at,
    (now() - workers.c.heartbeat_at).label("age"),
)
# Built once: every run that is planned asks who serves its card.
_ALIVE = (
    select(*_COLUMNS)
    .where(workers.c.state != STOPPED, workers.c.heartbeat_at >= now() - bindparam("within"))
    .order_by(workers.c.heartbeat_at.desc(), workers.c.id.desc())
)


class Workers:
    """`catalog.workers`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def register(self, info: WorkerInfo) -> None:
        """Enter a worker, with its first heartbeat."""
        values = {
            "host": info.host,
            "pid": info.pid,
            "device": info.device,
            "cards": _plain(info.cards),
            "state": info.state,
            "heartbeat_at": now(),
        }
        statement = self._database.insert(workers).values(id=info.id, started_at=now(), **values)
        with self._database.write() as connection:
            connection.execute(statement.on_conflict_do_update(index_elements=[workers.c.id], set_=values))

    def heartbeat(
        self, worker_id: str, cards: Mapping[str, Mapping[str, Any]] | None = None, state: str | None = None
    ) -> None:
        """Say that the worker lives, and what changed about it. Raises UnknownReference if it never
        registered."""
        values: dict[str, Any] = {"heartbeat_at": now()}
        if cards is not None:
            values["cards"] = _plain(cards)
        if state is not None:
            values["state"] = state
        with self._database.write() as connection:
            result = connection.execute(update(workers).where(workers.c.id == worker_id).values(**values))
        if not result.rowcount:
            raise UnknownReference(f"no worker has the id {worker_id!r}: register it first")

    def mark_stopped(self, worker_id: str) -> None:
        """The worker has ended."""
        with self._database.write() as connection:
            connection.execute(update(workers).where(workers.c.id == worker_id).values(state=STOPPED))

    def list(self, limit: int = 100) -> builtins.list[WorkerInfo]:
        """Newest heartbeat first."""
        query = select(*_COLUMNS).order_by(workers.c.heartbeat_at.desc(), workers.c.id.desc()).limit(limit)
        with self._database.glance() as connection:
            return [WorkerInfo(*row) for row in connection.execute(query)]

    def alive(
        self, card: str | None = None, within_seconds: float = ALIVE_SECONDS
    ) -> builtins.list[WorkerInfo]:
        """Workers heard of within that time and not stopped; those serving a card, if asked."""
        with self._database.glance() as connection:
            found = [WorkerInfo(*row) for row in connection.execute(_ALIVE, {"within": within_seconds})]
        return [worker for worker in found if card is None or card in worker.cards]

    def contract(self, card: str, within_seconds: float = ALIVE_SECONDS) -> dict[str, Any] | None:
        """The numeric contract under which the card is served: by a live worker, else by the last one that
        served it.

        None when no worker ever did.
        """
        for candidates in (lambda: self.alive(card, within_seconds), self.list):
            for worker in candidates():
                contract = worker.cards.get(card, {}).get("contract")
                if contract:
                    return dict(contract)
        return None


def _plain(cards: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {card: dict(facts) for card, facts in cards.items()}
