"""Rows by many keys: as many statements as it takes, none of them near a database's limit of parameters."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from sqlalchemy import BindParameter, Connection, Row, Select, bindparam

from mutoscope.platform.batches import batched

CHUNK = 2_000
"""Keys per statement: far below SQLite's 32,766 and Postgres's 65,535 parameters, even where one binds
them twice."""

KEYS: BindParameter[str] = bindparam("keys", expanding=True)
"""What a statement for `by_keys` compares its key with."""


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
