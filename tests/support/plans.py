"""How a database means to answer: which of its tables a statement would read from end to end.

A plan is read as the database writes it: ``EXPLAIN QUERY PLAN`` on SQLite, ``EXPLAIN (FORMAT JSON)`` on
Postgres. There the planner is told to avoid scans where it can (``enable_seqscan = off``): a table of a test
is small enough that reading all of it would otherwise be right, and the question is whether there is another
way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import event, text

from mutoscope.platform.catalog import Catalog
from mutoscope.platform.catalog.tables import metadata

_IN_FLIGHT = {
    "ix_runs_queue",
    "uq_runs_memo_key_in_flight",
    "ix_workflow_runs_under_way",
    "ix_workflow_runs_crashed",
}
"""Indexes that may be read from end to end: they hold what is in flight alone, or has crashed."""

_SMALL = {"queues"}
"""Tables that may be read whole: a row per card about which an operator said something."""

_BY_AGE = {f"ix_{table}_created_at" for table in metadata.tables} | {"ix_workers_heartbeat_at"}
"""Indexes that may be read from the newest on, by a statement that stops at a limit."""


_FIRST_COLUMN = {
    str(named.name): next(iter(named.columns)).name
    for table in metadata.tables.values()
    for named in (*table.indexes, table.primary_key, *table.constraints)
    if getattr(named, "columns", None)
}


def _may_be_read(index: str, statement: str) -> bool:
    return index in _IN_FLIGHT or (index in _BY_AGE and "LIMIT" in statement)


class Plans:
    """Every statement that reads, and the tables it would scan."""

    def __init__(self) -> None:
        self.scans: dict[str, list[str]] = {}

    @property
    def bad(self) -> Mapping[str, list[str]]:
        """Those statements that would scan something."""
        return {statement: tables for statement, tables in self.scans.items() if tables}


@contextmanager
def watched(catalog: Catalog) -> Iterator[Plans]:
    """Explain whatever the catalog executes in the block, once per statement."""
    plans, database = Plans(), catalog._database
    explain = _sqlite_scans if database.is_sqlite else _postgres_scans

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, *rest: object) -> None:
        words = statement.split(None, 1)
        if words[0].upper() in ("SELECT", "UPDATE", "WITH", "DELETE") and statement not in plans.scans:
            first = parameters[0] if isinstance(parameters, list) else parameters
            plans.scans[statement] = explain(connection.connection.driver_connection, statement, first)

    event.listen(database.engine, "before_cursor_execute", note)
    try:
        yield plans
    finally:
        event.remove(database.engine, "before_cursor_execute", note)


_STEP = re.compile(
    r"(?P<how>SCAN|SEARCH) (?P<what>\S+)(?: USING (?P<automatic>AUTOMATIC )?.*?INDEX (?P<index>\w+))?"
)


def _sqlite_scans(driver: Any, statement: str, parameters: Any) -> list[str]:
    """A table is under its alias in a step, so whatever is scanned counts, but for what the statement itself
    makes: constants, lists, tables of its own. A search through an index built for it has read it all."""
    steps = [row[3] for row in driver.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)]
    made = {step.split()[1] for step in steps if step.startswith(("CO-ROUTINE", "MATERIALIZE"))}
    made |= {"CONSTANT"} | {step.split()[1] for step in steps if "VIRTUAL TABLE" in step}
    bad = []
    for step in steps:
        match = _STEP.match(step)
        if match is None or match["what"].strip("()") in made | _SMALL or "subquery" in step:
            continue
        scanned = match["how"] == "SCAN" and not _may_be_read(match["index"] or "", statement)
        if scanned or match["automatic"]:
            bad.append(step)
    return bad


def _postgres_scans(driver: Any, statement: str, parameters: Any) -> list[str]:
    with driver.cursor() as cursor:
        cursor.execute("set enable_seqscan = off")
        cursor.execute(f"explain (format json) {statement}", parameters)
        (plan,) = cursor.fetchone()
        cursor.execute("set enable_seqscan = on")
    return list(_scanned(plan[0]["Plan"], statement))


def _scanned(node: Mapping[str, Any], statement: str) -> Iterator[str]:
    kind, index = node["Node Type"], node.get("Index Name", "")
    by_index = kind in ("Index Scan", "Index Only Scan", "Bitmap Index Scan")
    # A condition on another than the first column skips through the index, and so reads all its pages.
    narrowed = re.search(rf"\b{_FIRST_COLUMN.get(index, '')}\b", node.get("Index Cond", ""))
    whole = by_index and not narrowed and not _may_be_read(index, statement)
    relation = node.get("Relation Name", "")
    whole = whole or (kind == "Seq Scan" and relation in metadata.tables)
    if whole and relation not in _SMALL:
        yield f"{kind} on {relation} {index}".strip()
    for child in node.get("Plans", ()):
        yield from _scanned(child, statement)


def analyse(catalog: Catalog) -> None:
    """Give the planner its statistics, as a server does by itself within a minute."""
    with catalog._database.write() as connection:
        connection.execute(text("analyze"))
