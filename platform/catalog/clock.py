"""The one clock of the catalog: the database's.

Leases compare times written by different machines, so none of those machines' clocks may take part. `now()`
is evaluated by the database inside the statement, in seconds since the Unix epoch (UTC), to the millisecond
or better.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Double
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


class now(FunctionElement[float]):  # noqa: N801  # reads as the SQL function it is
    """Seconds since the epoch, by the database's clock."""

    type = Double()
    inherit_cache = True


@compiles(now, "sqlite")
def _sqlite(element: now, compiler: SQLCompiler, **options: Any) -> str:
    # julianday('now') is constant within one statement; 2440587.5 is the epoch as a Julian day.
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(now, "postgresql")
def _postgresql(element: now, compiler: SQLCompiler, **options: Any) -> str:
    # clock_timestamp(), not now(): the latter stands still at the start of the transaction, and a claim that
    # waited for a lock would hand out a lease already half spent. As a subquery it is asked once in a
    # statement; a comparison with the bare function, which may change from row to row, could use no index.
    return "(select extract(epoch from clock_timestamp())::double precision)"
