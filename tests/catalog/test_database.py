"""Transactions: snapshots, all or nothing, clear errors; and SQL that both databases read."""

from __future__ import annotations

import gc
import importlib
import pkgutil
import threading
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import ClauseElement, insert, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

import mutoscope.platform.catalog as package
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.catalog.clock import now
from mutoscope.platform.catalog.tables import metadata, workers, workflow_runs
from mutoscope.platform.errors import CatalogError
from tests.support.records import a_spec, an_artifact, present


def test_a_reader_sees_one_state_throughout(catalog: Catalog) -> None:
    count = select(workflow_runs.c.id)
    with catalog._database.read() as connection:
        assert connection.execute(count).all() == []
        writer = threading.Thread(target=catalog.workflows.start, args=("text_to_image", {}))
        writer.start()
        writer.join()
        assert connection.execute(count).all() == [], "and it did not hold up the writer"
    assert len(catalog.workflows.list()) == 1


def test_a_write_that_fails_leaves_nothing(catalog: Catalog) -> None:
    row = {"id": "a", "workflow": "w", "parameters": {}, "state": "running", "created_at": 0.0}

    def fails_half_way() -> None:
        with catalog._database.write() as connection:
            connection.execute(insert(workflow_runs).values(row))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails_half_way()
    assert catalog.workflows.list() == []


def test_threads_share_a_catalog(catalog: Catalog) -> None:
    errors: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for n in range(10):
                catalog.artifacts.record(an_artifact(f"{name}-{n}"))
                assert catalog.runs.enqueue(a_spec(f"{n}"), present=present).run.state == "queued"
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(str(n),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(catalog.artifacts.list(limit=100)) == 40
    assert len(catalog.runs.list(limit=100)) == 10


def test_a_broken_database_is_one_line(sqlite_catalog: Catalog, home: Path) -> None:
    catalog = sqlite_catalog
    catalog.close()
    for path in home.glob("catalog.db*"):
        path.unlink()
    (home / "catalog.db").mkdir()
    with pytest.raises(CatalogError, match=r"catalog.db does not answer .*check the database") as broken:
        catalog.workflows.list()
    assert "\n" not in str(broken.value)


def test_the_clock_is_the_databases(catalog: Catalog) -> None:
    with catalog._database.read() as connection:
        first, second = connection.execute(select(now(), now())).one()
    # Within a statement SQLite's stands still and Postgres' goes on; 2020 to 2200, in seconds.
    assert 0 <= second - first < 1
    assert 1.577e9 < first < 7.3e9


def statements() -> dict[str, ClauseElement]:
    """Every statement the catalog's modules built at import."""
    found = {}
    for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(info.name)
        for name, value in vars(module).items():
            values = value.values() if isinstance(value, dict) else [value]
            for position, each in enumerate(values):
                if isinstance(each, ClauseElement) and hasattr(each, "is_dml"):
                    found[f"{info.name}.{name}[{position}]"] = each
    return found


def compiled(statement: Any, dialect: Any) -> str:
    columns = list(statement.table.c.keys()) if getattr(statement, "is_insert", False) else None
    return str(statement.compile(dialect=dialect, column_keys=columns))


@pytest.mark.parametrize("dialect", [postgresql.dialect(), sqlite.dialect()], ids=["postgresql", "sqlite"])  # type: ignore[no-untyped-call]
def test_both_databases_can_read_it(dialect: object) -> None:
    built = statements()
    assert len(built) > 20
    texts = {name: compiled(statement, dialect) for name, statement in built.items()}
    for table in metadata.sorted_tables:
        str(CreateTable(table).compile(dialect=dialect))  # type: ignore[arg-type]
        for index in table.indexes:
            str(CreateIndex(index).compile(dialect=dialect))  # type: ignore[arg-type]
    on_postgres = isinstance(dialect, postgresql.base.PGDialect)
    everything = "\n".join(texts.values())
    assert ("FOR UPDATE SKIP LOCKED" in everything) is on_postgres
    assert ("clock_timestamp()" in everything) is on_postgres
    assert ("julianday" in everything) is not on_postgres


def test_closing_leaves_no_connection_open(catalog: Catalog) -> None:
    catalog.workflows.list()
    catalog.close()
    gc.collect()  # a connection left open would warn here, and warnings are errors
    assert catalog.workflows.list() == [], "a closed catalog opens again when it is used"


def test_tables_say_what_they_hold() -> None:
    # Every table of the data model, no more.
    assert set(metadata.tables) == {
        "approvals",
        "artifacts",
        "attempts",
        "calls",
        "collections",
        "edges",
        "identity",
        "incidents",
        "leases",
        "members",
        "pins",
        "queues",
        "retention_rules",
        "runs",
        workers.name,
        "weight_aliases",
        "weight_versions",
        "workflow_runs",
    }
