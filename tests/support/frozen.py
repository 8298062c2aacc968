"""A process that stands still, as a machine does that swaps or a network that is cut."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.deadline import until


@contextmanager
def frozen(pid: int, catalog: Path) -> Iterator[None]:
    """Stop a process of an embedded catalog while the block lasts.

    Never inside a transaction: whoever is stopped there keeps SQLite's write lock from everybody else.
    """
    until(lambda: _stopped_between_writes(pid, catalog), "the process between two writes")
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _stopped_between_writes(pid: int, catalog: Path) -> bool:
    os.kill(pid, signal.SIGSTOP)
    if _is_writable(catalog):
        return True
    os.kill(pid, signal.SIGCONT)
    return False


def _is_writable(catalog: Path) -> bool:
    # Longer than anybody else's write: a lock that outlasts it is the stopped process's own.
    connection = sqlite3.connect(catalog, timeout=1.0, isolation_level=None)
    try:
        connection.execute("begin immediate")
        connection.execute("rollback")
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()
    return True
