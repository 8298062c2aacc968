"""Rows in bulk: histories brought from another system, archives, synthetic catalogs.

The everyday calls write one run with its edges; each statement goes through SQLAlchemy, for which a row
costs some tens of microseconds. Here a batch of rows is one statement of the driver: `executemany` on SQLite,
COPY into a table of the transaction's own and one INSERT from there on Postgres. What the everyday calls
promise holds here too: references lead to rows that are there, and a row that is there already is left as it
is, or the whole block fails when it says otherwise. Recording the same rows again is therefore no error and
changes nothing, and an import that was killed is repeated.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

from sqlalchemy import JSON, Column, Connection, Table, select, tuple_
from sqlalchemy.exc import DataError, IntegrityError, OperationalError

from mutoscope.platform.batches import batched
from mutoscope.platform.catalog.clock import now
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.graph import Edge
from mutoscope.platform.catalog.keys import CHUNK
from mutoscope.platform.catalog.records import RunRecord
from mutoscope.platform.catalog.tables import artifacts, edges, members, runs, workflow_runs
from mutoscope.platform.catalog.workflows import WorkflowRecord
from mutoscope.platform.errors import CatalogError, InvalidParameter, UnknownReference
from mutoscope.platform.refs import ArtifactRef

BATCH = 10_000
"""Rows per statement: enough that a statement's own cost vanishes, few enough that memory stays flat."""

Columns = Sequence[Column[Any]]
Rows = Sequence[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class ArtifactRow:
    """An artifact as the catalog keeps it. `created_at` in seconds since the epoch; None: now. `present` is
    False for one whose bytes were collected."""

    ref: ArtifactRef
    created_at: float | None = None
    present: bool = True


@dataclass(frozen=True, slots=True)
class Member:
    """An artifact that a container (a component's manifest, say) cannot be read without."""

    container: str
    path: str
    digest: str


class Bulk:
    """What `Catalog.bulk` hands out: one transaction. Each call returns how many of its rows were new.

    Order matters, as everywhere: a row before what refers to it.
    """

    def __init__(self, database: Database, connection: Connection) -> None:
        self._database = database
        self._connection = connection

    def artifacts(self, rows: Iterable[ArtifactRow]) -> int:
        """Record artifacts. Bytes of those present are in the store already; a tombstone of one comes back to
        life, and counts as made now."""
        at = self._connection.execute(select(now())).scalar_one()
        return self._insert(artifacts, (_artifact(row, at) for row in rows), (), _ARTIFACT_COLUMNS)

    def workflow_runs(self, records: Iterable[WorkflowRecord]) -> int:
        """Record workflow runs; a parent before its children."""
        return self._insert(workflow_runs, map(_workflow_run, records), ("workflow",))

    def runs(self, records: Iterable[RunRecord]) -> int:
        """Record runs that have ended.

        Raises:
            InvalidParameter: a run has not: only `Runs.enqueue` may put one into the queue.
        """
        return self._insert(runs, map(_ended, records), ("kind", "card", "memo_key", "state"))

    def edges(self, found: Iterable[Edge]) -> int:
        """Record what runs used and generated.

        Raises:
            UnknownReference: the catalog does not know a run or an artifact.
            CatalogError: it knows another artifact at an edge.
        """
        return self._insert(edges, map(_edge, found), ("artifact_digest",))

    def members(self, found: Iterable[Member]) -> int:
        """Record what containers hold. Raises as `edges`."""
        return self._insert(members, map(_member, found), ("artifact_digest",))

    def _insert(
        self,
        table: Table,
        rows: Iterable[tuple[Any, ...]],
        settled: Sequence[str],
        columns: Sequence[str] = (),
    ) -> int:
        """Insert in batches; `settled` names the columns in which a row that is there must agree."""
        given, new = [table.c[name] for name in columns] or list(table.c), 0
        insert = self._insert_sqlite if self._database.is_sqlite else self._insert_postgres
        for batch in batched(rows, BATCH):
            try:
                with self._connection.begin_nested():
                    count = insert(table, given, batch)
            except (IntegrityError, DataError) as error:
                self._explain(table, batch)
                raise CatalogError(f"rows for {table.name} were refused: {error.orig}") from None
            if count < len(batch) and settled:
                self._compare(table, batch, settled)
            new += count
        return new

    def _insert_sqlite(self, table: Table, given: Columns, batch: Rows) -> int:
        source = f"values ({', '.join('?' * len(given))})"
        return self._connection.exec_driver_sql(self._statement(table, given, source), batch).rowcount

    def _insert_postgres(self, table: Table, given: Columns, batch: Rows) -> int:
        names, staged = _names(given), f"staged_{table.name}"
        self._connection.exec_driver_sql(
            f"create temp table if not exists {staged} on commit drop as "
            f"select {names} from {table.name} with no data"
        )
        driver: Any = self._connection.connection.driver_connection
        dbapi: Any = self._database.engine.dialect.dbapi
        copy_in = f"copy {staged} ({names}) from stdin"
        try:
            with driver.cursor().copy(copy_in) as copy:
                for row in batch:
                    copy.write_row(row)
        except dbapi.DataError as error:
            raise DataError(copy_in, None, error) from error
        except dbapi.Error as error:
            raise OperationalError(copy_in, None, error) from error
        # In the key's order, as everybody inserts: two writers of the same rows wait, but never in a circle.
        source = f"select {names} from {staged} order by {_names(list(table.primary_key))}"
        count = self._connection.exec_driver_sql(self._statement(table, given, source)).rowcount
        self._connection.exec_driver_sql(f"truncate {staged}")
        return count

    def _statement(self, table: Table, given: Columns, source: str) -> str:
        into, key = f"{table.name} ({_names(given)})", _names(list(table.primary_key))
        settled = "nothing"
        if table is artifacts:
            clock = now().compile(dialect=self._database.engine.dialect)
            settled = f"update set state = 'present', created_at = {clock} where {_REVIVED}"
        return f"insert into {into} {source} on conflict ({key}) do {settled}"

    def _explain(self, table: Table, batch: Sequence[tuple[Any, ...]]) -> None:
        """Name the reference that leads nowhere, if that is what was wrong."""
        for position, column in enumerate(table.c):
            for key in column.foreign_keys:
                wanted = {row[position] for row in batch} - {None}
                missing = wanted - {found[0] for found in self._rows(key.column.table, [key.column], wanted)}
                if missing:
                    raise UnknownReference(
                        f"{table.name}.{column.name}={min(missing)[:36]} leads to no row of "
                        f"{key.column.table.name}: record that first"
                    )

    def _compare(self, table: Table, batch: Sequence[tuple[Any, ...]], settled: Sequence[str]) -> None:
        """Raise CatalogError where a row that was there already says something else."""
        names = list(table.c.keys())
        keys = [names.index(column.name) for column in table.primary_key]
        said = [names.index(name) for name in settled]
        there = {
            tuple(row[: len(keys)]): tuple(row[len(keys) :])
            for row in self._rows(
                table, [table.c[position] for position in (*keys, *said)], {row[keys[0]] for row in batch}
            )
        }
        for row in batch:
            key, given = tuple(row[position] for position in keys), tuple(row[position] for position in said)
            if there.get(key) != given:
                raise CatalogError(
                    f"{table.name} has {dict(zip(settled, there.get(key, ()), strict=False))} for "
                    f"{' '.join(map(str, key))}, not {dict(zip(settled, given, strict=True))}: "
                    "the rows come from a history that contradicts this one"
                )

    def _rows(self, table: Table, columns: Sequence[Column[Any]], keys: set[Any]) -> Iterable[Sequence[Any]]:
        """The columns of rows whose first primary key column is one of `keys`."""
        first = next(iter(table.primary_key))
        for chunk in batched(sorted(keys), CHUNK):
            chosen = tuple_(first).in_([(key,) for key in chunk])
            yield from self._connection.execute(select(*columns).where(chosen))


def _names(columns: Columns) -> str:
    return ", ".join(column.name for column in columns)


_REVIVED = "artifacts.state = 'tombstone' and excluded.state = 'present'"

_encode = json.JSONEncoder(default=dict).encode


def _json(value: Any) -> str | None:
    return None if value is None else _encode(value)


_ARTIFACT_COLUMNS = (
    "digest",
    "kind",
    "media_type",
    "size",
    "meta",
    "state",
    "created_at",
    "collected_at",
    "purged_at",
)


def _artifact(row: ArtifactRow, at: float) -> tuple[Any, ...]:
    ref, state = row.ref, "present" if row.present else "tombstone"
    created = at if row.created_at is None else row.created_at
    # Of a tombstone that comes from elsewhere there are no bytes in the trash here.
    gone = None if row.present else created
    return ref.digest, ref.kind, ref.media_type, ref.size, _json(ref.meta), state, created, gone, gone


def _ended(run: RunRecord) -> tuple[Any, ...]:
    if not run.finished:
        raise InvalidParameter("state", run.state, f"run {run.id} has not ended: record it when it has")
    return _run(run)


def _reader(record: type, table: Table) -> Callable[[Any], tuple[Any, ...]]:
    """What turns a record into its table's row: the same columns in the same order, JSON as text."""
    names = [field.name for field in fields(record)]
    assert len(names) == len(table.c), f"{record.__name__} is the row, in its order"
    read = attrgetter(*names)
    encoded = [position for position, column in enumerate(table.c) if isinstance(column.type, JSON)]
    if not encoded:
        return read

    def read_encoded(given: Any) -> tuple[Any, ...]:
        row = list(read(given))
        for position in encoded:
            row[position] = _json(row[position])
        return tuple(row)

    return read_encoded


_run, _workflow_run = _reader(RunRecord, runs), _reader(WorkflowRecord, workflow_runs)
_edge, _member = _reader(Edge, edges), _reader(Member, members)
