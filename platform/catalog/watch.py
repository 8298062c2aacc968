"""Has anything changed? A question cheap enough to ask hundreds of times a second.

On SQLite, `PRAGMA data_version` compares a counter in shared memory: it takes no lock, reads no page and
costs a few microseconds, against half a millisecond for looking at the queue itself. On Postgres, the
transactions that queue or end runs send a NOTIFY, and asking looks whether one has arrived at a connection
that LISTENs.

Whoever has nothing else to do waits here. On Postgres that is a sleep from which the notice itself wakes. On
SQLite it is a series of naps, each ended by the question: short ones while there was news a moment ago, since
one run follows another, and long ones once it has become quiet, so that an idle worker takes less than one
per cent of a core.

Time passing is not a change: whoever waits for a lease to run out must look by itself now and then.
"""

from __future__ import annotations

import select
import sqlite3
import time
from collections.abc import Callable
from typing import Any

from mutoscope.platform.catalog.database import CHANNEL, Database, clear_errors
from mutoscope.platform.errors import CatalogError

RETRY_SECONDS = 1.0
"""How long a listener that lost its server leaves it alone before it connects again."""

BRISK_NAP_SECONDS = 0.0005
"""A nap on SQLite while there is news: a step of a chain takes some milliseconds, and waits twice for half of
this. One question costs about 10 µs."""

QUIET_NAP_SECONDS = 0.005
BRISK_FOR_SECONDS = 0.25
"""How long after the last news naps are brisk; it outlasts what a workflow does between two short runs."""


class Watch:
    """Changes committed by any connection since the last look. For use by one thread.

    On SQLite every commit is a change; on Postgres those that queue, end or cancel a run.
    """

    def __init__(self, database: Database) -> None:
        self._source = _Counter(database) if database.is_sqlite else _Listener(database)

    def changed(self) -> bool:
        """Whether something was committed since the last call; the first call says yes."""
        return self._source.changed()

    def wait(self, seconds: float) -> bool:
        """Return True as soon as something was committed since the last look, False after that time."""
        return self._source.wait(seconds)

    def close(self) -> None:
        """Give the connection back."""
        self._source.close()


class _Counter:
    """SQLite's own count of commits."""

    def __init__(self, database: Database) -> None:
        # A connection of its own: the counter does not count what its own connection writes.
        self._connection = database.engine.raw_connection()
        self._seen: int | None = None
        self._brisk_until = 0.0

    def changed(self) -> bool:
        driver: Any = self._connection.driver_connection
        try:
            (version,) = driver.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error:
            return True  # the query that follows meets the same trouble, and says what it is
        if version == self._seen:
            return False
        self._seen = version
        self._brisk_until = time.monotonic() + BRISK_FOR_SECONDS
        return True

    def wait(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while not self.changed():
            now = time.monotonic()
            if now >= until:
                return False
            nap = BRISK_NAP_SECONDS if now < self._brisk_until else QUIET_NAP_SECONDS
            time.sleep(min(nap, until - now))
        return True

    def close(self) -> None:
        self._connection.close()


class _Listener:
    """A Postgres connection that listens. What was sent while it was cut off is lost, so a new connection
    counts as a change."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._driver: Any = None
        self._not_before = 0.0

    def changed(self) -> bool:
        if self._driver is None:
            return self._clock() >= self._not_before and self._connect()
        try:
            return self._heard()
        except self._errors:
            self.close()
            return True  # the query that follows meets the same trouble, and says what it is

    def wait(self, seconds: float) -> bool:
        if self.changed():
            return True
        if self._driver is None:
            time.sleep(min(seconds, RETRY_SECONDS))
            return self.changed()
        poll = select.poll()
        poll.register(self._driver.fileno(), select.POLLIN)
        return bool(poll.poll(seconds * 1e3)) and self.changed()

    def close(self) -> None:
        if self._driver is not None:
            self._driver.close()
            self._driver = None

    def _heard(self) -> bool:
        connection, heard = self._driver.pgconn, False
        connection.consume_input()
        while connection.notifies() is not None:
            heard = True
        return heard

    def _connect(self) -> bool:
        self._not_before = self._clock() + RETRY_SECONDS
        try:
            with clear_errors(self._database.shown_url):
                connection = self._database.engine.raw_connection()
            self._driver = connection.driver_connection
            connection.detach()  # it is not for others, nor counted among the pool's
            self._driver.autocommit = True
            self._driver.execute(f"listen {CHANNEL}")
        except self._errors:
            self.close()
        return True

    @property
    def _errors(self) -> tuple[type[Exception], ...]:
        dbapi: Any = self._database.engine.dialect.dbapi
        return dbapi.Error, CatalogError
