"""Has anything changed? A question cheap enough to ask hundreds of times a second.

On SQLite, `PRAGMA data_version` compares a counter in shared memory: it takes no lock, reads no page and
costs a few microseconds, against half a millisecond for looking at the queue itself. An idle worker or a
waiter can therefore poll at a few milliseconds without burning a core. Elsewhere there is no such counter:
the answer is always yes, and the caller's own query, at its own pace, finds out.

Time passing is not a change: whoever waits for a lease to run out must look by itself now and then.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from mutoscope.platform.catalog.database import Database


class Watch:
    """Changes committed by any connection since the last look. For use by one thread."""

    def __init__(self, database: Database) -> None:
        # A connection of its own: the counter does not count what its own connection writes.
        self._connection = database.engine.raw_connection() if database.is_sqlite else None
        self._seen: int | None = None

    def changed(self) -> bool:
        """Whether something was committed since the last call; the first call says yes."""
        if self._connection is None:
            return True
        driver: Any = self._connection.driver_connection
        try:
            (version,) = driver.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error:
            return True  # the query that follows meets the same trouble, and says what it is
        changed = version != self._seen
        self._seen = version
        return bool(changed)

    def close(self) -> None:
        """Give the connection back."""
        if self._connection is not None:
            self._connection.close()
