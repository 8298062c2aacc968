"""Connections and transactions, on either database.

`read()` is a snapshot, `glance()` one for a single statement; `write()` is all or nothing, `stroke()` a
single statement that writes.

On SQLite a transaction that starts by reading and then writes can fail half-way because another writer came
between ("database is locked", not retryable in place); taking the write lock at BEGIN turns that failure into
a wait. On Postgres writers run side by side, each statement seeing what was committed before it; where two of
them must not, they first `serialise` on a name.
"""

from __future__ import annotations

import re
import select
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, Table, create_engine, event, make_url, text
from sqlalchemy.exc import (
    ArgumentError,
    DatabaseError,
    DBAPIError,
    InterfaceError,
    InternalError,
    InvalidatePoolError,
    OperationalError,
)

from mutoscope.platform import faults
from mutoscope.platform.errors import CatalogError, CatalogUnavailable, InvalidInput

DIALECTS = ("sqlite", "postgresql")
"""The databases a catalog can live in; the tests run on each of them."""

CHANNEL = "mutoscope"
"""The Postgres channel on which transactions that queue or end runs say so; see `watch`."""

BUSY_SECONDS = 60
"""How long a writer waits for another before it gives up. Writes take about a millisecond; this is for a
stalled disk."""


CONNECT_SECONDS = 10
"""How long a Postgres server may take to accept a connection, unless the URL has a ``connect_timeout``."""

SILENT_SECONDS = 8
"""How long a Postgres transaction may lie between two statements before the server ends it. A host that lost
its network in the middle of one would otherwise hold the rows that others wait for until the server's TCP
gives up, hours later. Statements of a transaction follow each other within milliseconds."""

WRITING_SECONDS = 15
"""How long a Postgres transaction that writes may take altogether, from Postgres 17 on. Silence alone is not
enough: a statement that is cut off between two of the protocol's messages, as one of many rows may be, is not
silent to the server but under way."""

_KEEPALIVE = {"keepalives_idle": 15, "keepalives_interval": 5, "keepalives_count": 3}
"""Seconds and tries after which either end takes the other, unheard of, for gone; in libpq's spelling, and
with ``tcp_`` before it Postgres's."""

_CONFLICTS = {"40001", "40P01", "55P03"}  # serialization failure, deadlock, lock not available
_SECRET_QUERY = ("password", "sslpassword")


class Database:
    """One engine with the transaction rules above. Thread-safe."""

    def __init__(self, url: str) -> None:
        try:
            parsed = _with_driver(make_url(url))
            self.engine: Engine = create_engine(parsed, connect_args=_connect_args(parsed))
        except (ArgumentError, ImportError, ValueError) as error:
            raise InvalidInput(
                f"database_url={without_password(url)!r} cannot be used ({without_password(str(error))}): "
                "use sqlite:////path/to/catalog.db, or postgresql+psycopg://user@host/database with "
                "mutoscope[postgres] installed"
            ) from None
        self.url = url
        self.shown_url = _shown(parsed)
        self.is_sqlite = self.engine.dialect.name == "sqlite"
        self.file = Path(parsed.database) if self.is_sqlite and parsed.database else None
        if self.is_sqlite:
            event.listen(self.engine, "connect", _prepare_sqlite)
            event.listen(self.engine, "begin", _begin_sqlite)
        else:
            event.listen(self.engine, "connect", _prepare_postgres)
            event.listen(self.engine, "checkout", _refuse_broken)
            event.listen(self.engine, "begin", _begin_postgres)
        self._glancer = self._beginning("glance")
        self._reader, self._slow_reader = self._beginning("read"), self._beginning("read at leisure")
        self._writer, self._slow_writer = self._beginning("write"), self._beginning("write at leisure")

    @contextmanager
    def read(self, *, at_leisure: bool = False) -> Iterator[Connection]:
        """A transaction that sees one state of the database throughout.

        Args:
            at_leisure: its statements may lie further apart than `SILENT_SECONDS`, with files between them.
        """
        engine = self._slow_reader if at_leisure else self._reader
        with clear_errors(self.shown_url), engine.begin() as connection:
            yield connection

    @contextmanager
    def glance(self) -> Iterator[Connection]:
        """For a single statement, or for several about rows that never change: each sees its own moment, and
        the two round trips around a transaction are saved."""
        with clear_errors(self.shown_url), self._glancer.begin() as connection:
            yield connection

    @contextmanager
    def write(self, *, news: bool = False, at_leisure: bool = False) -> Iterator[Connection]:
        """A transaction that may write; all or nothing.

        Args:
            news: workers or waiters may want to look; whoever watches hears of it at the commit.
            at_leisure: as of `read`, and it may take longer than `WRITING_SECONDS`; a dead host is then
                noticed by its silence on the wire alone, half a minute later.
        """
        engine = self._slow_writer if at_leisure else self._writer
        with clear_errors(self.shown_url), engine.begin() as connection:
            yield connection
            if news and not self.is_sqlite:
                connection.execute(_NOTIFY)
            faults.hit("catalog.before_commit")
        faults.hit("catalog.after_commit")

    @contextmanager
    def stroke(self) -> Iterator[Connection]:
        """For a single statement that writes, which is all or nothing by itself: on Postgres the two round
        trips around a transaction are saved."""
        engine = self._writer if self.is_sqlite else self._glancer
        with clear_errors(self.shown_url), engine.begin() as connection:
            faults.hit("catalog.before_commit")
            yield connection
        faults.hit("catalog.after_commit")

    def serialise(self, connection: Connection, name: str) -> None:
        """Wait until no other transaction holds `name`, and hold it until this one ends.

        For a decision that rests on reading what nobody may change meanwhile, such as the next ordinal. On
        SQLite a writer is alone anyway.
        """
        if not self.is_sqlite:
            connection.execute(_SERIALISE, {"name": name})

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

    def _beginning(self, manner: str) -> Engine:
        return self.engine.execution_options(mutoscope_begin=manner)


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
    # Pages beyond the cache are read from a mapping of the file, not copied by a system call each: a quarter
    # off a closure of 100,000 nodes. Address space, not memory; the file is local anyway, as WAL demands.
    connection.execute(f"PRAGMA mmap_size = {4 << 30}")
    # Sorting and recursive queues of lineage queries need no files.
    connection.execute("PRAGMA temp_store = MEMORY")


def _begin_sqlite(connection: Connection) -> None:
    manner = _manner(connection)
    if manner != "glance":
        driver: Any = connection.connection.driver_connection
        driver.execute("BEGIN IMMEDIATE" if manner.startswith("write") else "BEGIN")


def _prepare_postgres(driver: Any, record: Any) -> None:
    # As on SQLite: `_begin_postgres` says when a transaction opens and how.
    driver.autocommit = True
    settings = {
        "idle_in_transaction_session_timeout": f"{SILENT_SECONDS}s",
        **{f"tcp_{name}": str(value) for name, value in _KEEPALIVE.items()},
    }
    chosen = ", ".join("set_config(%s, %s, false)" for _ in settings)
    driver.execute(f"select {chosen}", [part for pair in settings.items() for part in pair])


def _begin_postgres(connection: Connection) -> None:
    """One round trip, with the limits of this transaction in it."""
    manner = _manner(connection)
    if manner == "glance":
        return
    access = "REPEATABLE READ READ ONLY" if manner.startswith("read") else "READ COMMITTED"
    statements = [f"BEGIN ISOLATION LEVEL {access}"]
    if manner.endswith("at leisure"):
        statements.append("SET LOCAL idle_in_transaction_session_timeout = 0")
    driver: Any = connection.connection.driver_connection
    if manner == "write" and driver.info.server_version >= _LIMITS_TRANSACTIONS:
        statements.append(f"SET LOCAL transaction_timeout = '{WRITING_SECONDS}s'")
    connection.exec_driver_sql("; ".join(statements))


def _manner(connection: Connection) -> str:
    """Whoever begins on the engine itself, with no manner, may take its time."""
    manner: str = connection.get_execution_options().get("mutoscope_begin", "write at leisure")
    return manner


_LIMITS_TRANSACTIONS = 170000  # the first server that knows transaction_timeout
_NOTIFY = text(f"notify {CHANNEL}")
_SERIALISE = text("select pg_advisory_xact_lock(hashtextextended(:name, 0))")


def _refuse_broken(driver: Any, record: Any, proxy: Any) -> None:
    """Before a pooled connection is used: nothing is to be read from a sound, idle one. A server that went
    away has left its farewell or an end of file there; then the pool starts afresh. Costs a system call where
    a ping would cost a round trip per transaction."""
    poll = select.poll()
    poll.register(driver.fileno(), select.POLLIN)
    if poll.poll(0):
        raise InvalidatePoolError


def _with_driver(url: URL) -> URL:
    """The driver we use for a URL that names none; anything but `DIALECTS` is refused."""
    if url.drivername in ("postgres", "postgresql"):
        url = url.set(drivername="postgresql+psycopg")
    if url.get_backend_name() not in DIALECTS:
        raise ArgumentError(f"{url.get_backend_name()} is not supported")
    if url.get_backend_name() != "sqlite" and "@" in f"{url.host}{url.database}":
        # A password's rest would be taken for a host, and shown as one.
        raise ArgumentError("a second @: write %40 where a password holds one")
    return url


def _connect_args(url: URL) -> dict[str, Any]:
    if url.get_backend_name() == "sqlite":
        return {}
    ours = {"connect_timeout": CONNECT_SECONDS, "application_name": "mutoscope", **_KEEPALIVE}
    return {name: value for name, value in ours.items() if name not in url.query}


def _shown(url: URL) -> str:
    """The URL as people may see it: neither of the two places in which it can hold a password."""
    secret = {name: "***" for name in _SECRET_QUERY if name in url.query}
    return url.update_query_dict(secret).render_as_string(hide_password=True)


def without_password(words: str) -> str:
    """`words` without the password of any URL in them, also one that cannot be parsed."""
    words = re.sub(r"(://[^:/@\s]*:|(?<![\w/:.])[^:/@\s'\"]+:(?!//))\S*@", r"\1***@", words)
    return re.sub(rf"\b({'|'.join(_SECRET_QUERY)})=[^&\s'\"]*", r"\1=***", words)


@contextmanager
def clear_errors(url: str) -> Iterator[None]:
    """Turn a database that cannot be reached, or gave up half-way, into a CatalogUnavailable of one line, a
    damaged one into a CatalogError. A statement that is wrong stays what it is: a defect."""
    try:
        yield
    except (InterfaceError, DatabaseError, sqlite3.OperationalError) as error:
        if isinstance(error, DatabaseError) and not isinstance(error, OperationalError | InternalError):
            # Integrity and the like are for the caller; the bare class is SQLite's word for a broken file.
            if type(error) is not DatabaseError:
                raise
            raise CatalogError(
                f"the catalog {url} is damaged ({error.orig}): restore it from a backup"
            ) from error
        reason = error.orig if isinstance(error, DBAPIError) else error
        shown = without_password(str(reason))
        if getattr(reason, "sqlstate", None) in _CONFLICTS:
            raise CatalogUnavailable(
                f"the catalog {url} gave way to another change ({shown}): try again"
            ) from error
        raise CatalogUnavailable(
            f"the catalog {url} does not answer ({shown}): check the database and its disk"
        ) from error
