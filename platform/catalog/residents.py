"""Which weights are in the memory of which worker, as far as workers have said lately."""

from __future__ import annotations

import time
from collections.abc import Callable

from sqlalchemy import bindparam, select

from mutoscope.platform.catalog.clock import now
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.tables import workers
from mutoscope.platform.catalog.workers import ALIVE_SECONDS

KEPT_SECONDS = 1.0
"""How long an answer is used again. Workers say what they have every few seconds, and what rests on it, a run
that is left to another for a moment, ends by itself."""

_OTHERS = (
    select(workers.c.cards)
    .where(
        workers.c.state == "ready",
        workers.c.heartbeat_at >= now() - ALIVE_SECONDS,
        workers.c.id != bindparam("worker"),
    )
    .order_by(workers.c.heartbeat_at.desc())
)


class Residents:
    """The other workers' weights, for one that claims many times a second."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._known: dict[str, tuple[float, frozenset[str]]] = {}

    def elsewhere(self, worker_id: str) -> frozenset[str]:
        """`weights_key` of all that is in the memory of live workers other than this one."""
        asked, keys = self._known.get(worker_id, (float("-inf"), frozenset()))
        if self._clock() - asked < KEPT_SECONDS:
            return keys
        with self._database.glance() as connection:
            told = connection.execute(_OTHERS, {"worker": worker_id}).scalars().all()
        keys = frozenset(
            key for cards in told for facts in cards.values() for key in facts.get("resident", ())
        )
        self._known[worker_id] = (self._clock(), keys)
        return keys
