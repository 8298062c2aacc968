"""Has anything changed? A question cheap enough to ask hundreds of times a second.

On SQLite, `PRAGMA data_version` compares a counter in shared memory: it takes no lock, reads no page and
costs a few microseconds, against half a millisecond for looking at the queue itself. On Postgres, the
transactions that queue or end runs send a NOTIFY, and asking looks whether one has arrived at a connection
that LISTENs. An idle worker can therefore poll at a few milliseconds without burning a core here or there.

Time passing is not a change: whoever waits for a lease to run out must look by itself now and then.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import Any

from mutoscope.platform.catalog.database import CHANNEL, Database, clear_errors
from mutoscope.platform.errors import CatalogError

RETRY_SECONDS = 1.0
"""How long a listener that lost its server leaves it alone before it connects again."""


class Watch:
    """Changes committed by any connection since the last look. For use by one thread.

    On SQLite every commit is a change; on Postgres those that queue, end or cancel a run.
    """

    def __init__(self, database: Database) -> None:
        self._source = _Counter(database) if database.is_sqlite else _Listener(database)

    def changed(self) -> bool:
        """Whether something was committed since the last call; the first call says yes."""
        return self._source.changed()

    def close(self) -> None:
        """Give the connection back."""
        self._source.close()


class _Counter:
    """SQLite's own count of commits."""

    def __init__(self, database: Database) -> None:
        # A connection of its own: the counter does not count what its own connection writes.
        self._connection = database.engine.raw_connection()
        self._seen: int | None = None

    def changed(self) -> bool:
        driver: Any = self._connection.driver_connection
        try:
            (version,) = driver.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error:
            return True  # the query that follows meets the same trouble, and says what it is
        changed = version != self._seen
        self._seen = version
        return bool(changed)

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
