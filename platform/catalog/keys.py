"""Rows by their keys: by many, in as many statements as it takes, none of them near a database's limit of
parameters; or by the beginning of one, as people type it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from sqlalchemy import BindParameter, ColumnElement, Connection, Row, Select, Table, bindparam, select

from mutoscope.platform.batches import batched
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.errors import AmbiguousReference, UnknownReference

CHUNK = 2_000
"""Keys per statement: far below SQLite's 32,766 and Postgres's 65,535 parameters, even where one binds
them twice."""

KEYS: BindParameter[str] = bindparam("keys", expanding=True)
"""What a statement for `by_keys` compares its key with."""

SHOWN_CANDIDATES = 5
"""Of the rows that an ambiguous name could stand for, how many its refusal lists."""


def by_keys(
    connection: Connection,
    statement: Select[*tuple[Any, ...]],
    keys: Collection[str],
    others: Mapping[str, Any] | None = None,
) -> Iterator[Row[*tuple[Any, ...]]]:
    """The rows of a statement that selects by `KEYS`, those of lower keys first; `others` are its other
    parameters. Streams."""
    for chunk in batched(sorted(keys), CHUNK):
        yield from connection.execute(statement, {**(others or {}), "keys": chunk})


def prefix_range(column: ColumnElement[str], prefix: str) -> ColumnElement[bool]:
    """Rows whose hex column starts with `prefix`, as a range so that the index serves it."""
    return (column >= prefix) & (column < prefix + "g")


def by_prefix(
    database: Database, table: Table, prefix: str, noun: str, listing: str
) -> Row[*tuple[Any, ...]]:
    """The one row of `table` whose `id` starts with `prefix`.

    Args:
        noun: what a row is, in the singular. listing: the command that lists them.

    Raises:
        UnknownReference: there is none.
        AmbiguousReference: there are several; the message lists them.
    """
    query = select(table).where(prefix_range(table.c.id, prefix.lower())).order_by(table.c.id)
    with database.glance() as connection:
        rows = connection.execute(query.limit(SHOWN_CANDIDATES + 1)).all()
    if not rows:
        raise UnknownReference(f"no {noun} id starts with {prefix!r}: `{listing}` lists them")
    if len(rows) > 1:
        shown = ", ".join(row.id for row in rows[:SHOWN_CANDIDATES])
        raise AmbiguousReference(f"{prefix!r} begins several {noun} ids ({shown}): add digits")
    return rows[0]
