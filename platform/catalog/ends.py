"""Who in this process waits for which run: one thread looks for all of them.

A waiter that looks for itself costs a query a look, so it either looks seldom or, beside twenty others, keeps
the database busy with nothing else. Here a `Watch` wakes one thread; it asks once for all the runs that
anybody waits for, and tells whom it concerns. A catalog that does not answer ends no wait: it is asked again
until it does.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, Select, bindparam, select

from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.edges import roles, to_run
from mutoscope.platform.catalog.keys import KEYS, by_keys
from mutoscope.platform.catalog.records import RunRecord
from mutoscope.platform.catalog.tables import runs
from mutoscope.platform.catalog.watch import Watch
from mutoscope.platform.errors import CatalogError
from mutoscope.platform.refs import ArtifactRef

UNPROMPTED_SECONDS = 0.5
"""Longest time between two looks: a notice may have been lost with its connection."""

RETRY_SECONDS = 0.5
LINGER_SECONDS = 2.0
"""How long the thread outlives its last waiter: a chain of runs is one wait after another."""


class _Question(NamedTuple):
    """About one run, or about many. A chain waits for one at a time, and a list of keys costs more to put
    together than SQLite takes to answer."""

    one: Select[*tuple[Any, ...]]
    many: Select[*tuple[Any, ...]]

    @classmethod
    def of(cls, columns: Select[*tuple[Any, ...]]) -> _Question:
        return cls(columns.where(runs.c.id == bindparam("run")), columns.where(runs.c.id.in_(KEYS)))

    def rows(self, connection: Connection, run_ids: Collection[str]) -> Iterable[Row[*tuple[Any, ...]]]:
        if len(run_ids) == 1:
            return connection.execute(self.one, {"run": next(iter(run_ids))})
        return by_keys(connection, self.many, run_ids)


_STANDING = _Question.of(
    select(runs.c.id, runs.c.state, runs.c.attempt, runs.c.stage, runs.c.step, runs.c.total)
)
_RECORDS = _Question.of(select(runs))

log = logging.getLogger(__name__)


Standing = tuple[Any, ...] | None
"""What a follower is told the changes of; None: there is no such run."""


class Seen(NamedTuple):
    """A run as it was just seen, with its outputs once it has succeeded."""

    run: RunRecord
    outputs: dict[str, ArtifactRef]


Tell = Callable[[Seen | None], None]
"""Called whenever the run has changed; with None when there is no such run. Must return at once."""


@dataclass(slots=True)
class _Wait:
    """Somebody's wait, and how the run stood when they were last told."""

    run_id: str
    tell: Tell
    told: Standing = ()


class Ends:
    """`catalog.ends`. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._telling = threading.Lock()  # looks take turns: what is told stays in order, and is told once
        self._tickets = itertools.count()
        self._waits: dict[int, _Wait] = {}
        self._thread: threading.Thread | None = None
        self._arrived = threading.Event()
        self._closing = False

    def follow(self, run_id: str, tell: Tell) -> int:
        """From now on, tell of every change of the run; returns a ticket to `leave` with.

        What happened before goes unnoticed until the next change: follow, then `look`. Asks nothing of the
        database, and `tell` is called in another thread.
        """
        with self._lock:
            ticket = next(self._tickets)
            self._waits[ticket] = _Wait(run_id, tell)
            self._arrived.set()
            if self._thread is None:
                self._thread = threading.Thread(name="ends", daemon=True, target=self._run)
                self._thread.start()
        return ticket

    def look(self, ticket: int) -> None:
        """Tell how the run stands, unless that is known. A catalog that does not answer is left to the
        thread."""
        with contextlib.suppress(CatalogError):
            self._look(frozenset({ticket}))

    def leave(self, ticket: int) -> None:
        """Follow no longer. What was seen a moment ago may still be told."""
        with self._lock:
            self._waits.pop(ticket, None)

    def close(self) -> None:
        """End the thread. Those who still wait are told nothing more."""
        with self._lock:
            thread, self._closing = self._thread, True
            self._waits.clear()
            self._arrived.set()
        if thread is not None:
            thread.join()
        self._closing = False

    def _run(self) -> None:
        watch = Watch(self._database)
        try:
            while self._awaited():
                self._turn(watch)
        finally:
            watch.close()

    def _awaited(self) -> bool:
        """Whether anybody waits; when nobody does for a while, the thread takes its leave."""
        while True:
            with self._lock:
                if self._waits:
                    return True
                self._arrived.clear()
                if self._closing:
                    self._thread = None
                    return False
            if not self._arrived.wait(LINGER_SECONDS):
                with self._lock:
                    if not self._waits:
                        self._thread = None
                        return False

    def _turn(self, watch: Watch) -> None:
        watch.wait(UNPROMPTED_SECONDS)
        with self._lock:
            tickets = frozenset(self._waits)
        try:
            self._look(tickets)
        except CatalogError as error:
            log.warning("cannot look for the ends of %d runs, trying again: %s", len(tickets), error)
            time.sleep(RETRY_SECONDS)

    def _look(self, tickets: Collection[int]) -> None:
        with self._telling:
            with self._lock:
                waits = [wait for ticket, wait in self._waits.items() if ticket in tickets]
            with self._database.glance() as connection:
                rows = _STANDING.rows(connection, {wait.run_id for wait in waits})
                standing = {row.id: tuple(row) for row in rows}
                news = [wait for wait in waits if standing.get(wait.run_id) != wait.told]
                seen = _seen(connection, {wait.run_id for wait in news})
            for wait in news:
                wait.told = standing.get(wait.run_id)
                wait.tell(seen.get(wait.run_id))


def _seen(connection: Connection, run_ids: Collection[str]) -> dict[str, Seen]:
    records = [to_run(row) for row in _RECORDS.rows(connection, run_ids)]
    # What a run that has succeeded made never changes: a later statement sees the same.
    return {
        run.id: Seen(run, roles(connection, run.id, "generated") if run.state == "succeeded" else {})
        for run in records
    }
