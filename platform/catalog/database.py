"""Connections and transactions.

`read()` is a snapshot; `write()` takes the write lock at once. On SQLite a transaction that starts by reading
and then writes can fail half-way because another writer came between ("database is locked", not retryable in
place); taking the lock at BEGIN turns that failure into a wait.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Table, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, OperationalError

from mutoscope.platform.errors import CatalogError, InvalidInput

BUSY_SECONDS = 60
"""How long a writer waits for another before it gives up. Writes take about a millisecond; this is for a
stalled disk."""


class Database:
    """One engine with the transaction rules above. Thread-safe."""

    def __init__(self, url: str) -> None:
        try:
            parsed = make_url(url)
            self.engine: Engine = create_engine(parsed)
        except (ArgumentError, ImportError) as error:
            raise InvalidInput(
                f"database_url={url!r} cannot be used ({error}): "
                "use sqlite:////path/to/catalog.db or postgresql+psycopg://user@host/database"
            ) from None
        self.url = url
        self.shown_url = parsed.render_as_string(hide_password=True)
        self.is_sqlite = self.engine.dialect.name == "sqlite"
        self.file = Path(parsed.database) if self.is_sqlite and parsed.database else None
        if self.is_sqlite:
            event.listen(self.engine, "connect", _prepare_sqlite)
            event.listen(self.engine, "begin", _begin_sqlite)
        self._writer = self.engine.execution_options(mutoscope_write=True)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that sees one state of the database throughout."""
        with _clear_errors(self.shown_url), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that may write; all or nothing."""
        with _clear_errors(self.shown_url), self._writer.begin() as connection:
            yield connection

    def insert(self, table: Table) -> Any:
        """An INSERT that understands ``on_conflict_do_…``, which SQLAlchemy keeps in the dialects."""
        if self.is_sqlite:
            from sqlalchemy.dialects.sqlite import insert as sqlite_insert

            return sqlite_insert(table)
        from sqlalchemy.dialects.postgresql import insert as postgresql_insert

        return postgresql_insert(table)

    def use_wal(self) -> None:
        """Switch a SQLite file to write-ahead logging: readers never wait for the writer. Persistent in the
        file."""
        with self.engine.connect() as connection:
            driver: Any = connection.connection.driver_connection
            driver.execute("PRAGMA journal_mode = WAL")

    def close(self) -> None:
        """Close idle connections."""
        self.engine.dispose()


def _prepare_sqlite(connection: Any, record: Any) -> None:
    # The driver must not open transactions by itself: `_begin_sqlite` says when and how.
    connection.isolation_level = None
    # First, so that the statements below already wait their turn.
    connection.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}")
    # SQLite ignores foreign keys unless asked, per connection.
    connection.execute("PRAGMA foreign_keys = ON")
    # With WAL, NORMAL loses at most the last commits in a power cut (never in a killed process) and cannot
    # corrupt. A lost row means a run is taken again; FULL would cost an fsync, some milliseconds, on every
    # commit.
    connection.execute("PRAGMA synchronous = NORMAL")
    # 64 MiB of page cache instead of 2: lineage walks of large catalogs stay in memory.
    connection.execute("PRAGMA cache_size = -65536")
    # Sorting and recursive queues of lineage queries need no files.
    connection.execute("PRAGMA temp_store = MEMORY")


def _begin_sqlite(connection: Connection) -> None:
    write = connection.get_execution_options().get("mutoscope_write", False)
    driver: Any = connection.connection.driver_connection
    driver.execute("BEGIN IMMEDIATE" if write else "BEGIN")


@contextmanager
def _clear_errors(url: str) -> Iterator[None]:
    try:
        yield
    except (OperationalError, sqlite3.OperationalError) as error:
        reason = error.orig if isinstance(error, OperationalError) else error
        raise CatalogError(
            f"the catalog {url} does not answer ({reason}): check the database and its disk"
        ) from error
