"""Transactions: snapshots, all or nothing, clear errors; and SQL that both databases read."""

from __future__ import annotations

import gc
import importlib
import pkgutil
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import ClauseElement, Connection, event, insert, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

import mutoscope.platform.catalog as package
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.catalog.clock import now
from mutoscope.platform.catalog.tables import metadata, workers, workflow_runs
from mutoscope.platform.errors import CatalogError
from tests.support.records import a_spec, an_artifact, claim, present, queue


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


def test_a_broken_database_is_one_line(catalog: Catalog, home: Path) -> None:
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
    # julianday('now') stands still within a statement; 2020 to 2200, in seconds.
    assert first == second
    assert 1.577e9 < first < 7.3e9


@pytest.fixture
def plans(catalog: Catalog) -> Iterator[dict[str, list[str]]]:
    """The plan of every query and update executed during the test: SQL to the steps SQLite takes."""
    seen: dict[str, list[str]] = {}

    def explain(connection: Connection, cursor: Any, statement: str, parameters: Any, *rest: object) -> None:
        if statement.split()[0] in ("SELECT", "UPDATE", "WITH") and statement not in seen:
            driver: Any = connection.connection.driver_connection
            first = parameters[0] if isinstance(parameters, list) else parameters
            steps = driver.execute(f"EXPLAIN QUERY PLAN {statement}", first).fetchall()
            seen[statement] = [step[3] for step in steps]

    engine = catalog._database.engine
    event.listen(engine, "before_cursor_execute", explain)
    yield seen
    event.remove(engine, "before_cursor_execute", explain)


def test_no_everyday_query_reads_a_whole_table(catalog: Catalog, plans: dict[str, list[str]]) -> None:
    image, weights = an_artifact("image"), an_artifact("w", "weights")
    imported = catalog.runs.record_completed("import", generated={"weights:net": weights})
    catalog.weights.publish("toy-card", "net", weights.digest, imported.id)
    catalog.weights.live("toy-card")
    for _ in range(2):  # the second success of the key is compared with the first
        run = queue(catalog, "key", inputs={"image": image}, weights={"net": weights.digest})
        catalog.runs.enqueue(a_spec("key"), present=present)
        catalog.runs.get(run.id)
        claim(catalog)
        catalog.runs.progress(run.id, "worker-a", "denoise", 1, 2)
        catalog.runs.renew("worker-a", [run.id], 60)
        catalog.runs.succeed(run.id, "worker-a", {"out": an_artifact("out")})
    catalog.runs.enqueue(a_spec("key"), present=present)
    catalog.runs.request_cancel(queue(catalog, "other").id)
    catalog.artifacts.resolve(image.digest[:20])
    catalog.artifacts.list(limit=5)
    catalog.runs.list(limit=5)
    catalog.lineage.weights_of(an_artifact("out").digest)
    catalog.lineage.down(image.digest, depth=2)

    assert len(plans) > 20
    tables = "|".join(metadata.tables)
    # "SCAN runs" reads every row there ever was; "SCAN runs USING INDEX ix_runs_queue" those in flight, and
    # "... ix_runs_created_at" stops at the limit.
    scan = re.compile(rf"SCAN ({tables})\b(?! USING (COVERING )?INDEX (ix_\w+_queue|ix_\w+_created_at))")
    assert {sql: steps for sql, steps in plans.items() if any(map(scan.match, steps))} == {}


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
        "artifacts",
        "collections",
        "edges",
        "incidents",
        "leases",
        "members",
        "pins",
        "retention_rules",
        "runs",
        workers.name,
        "weight_aliases",
        "weight_versions",
        "workflow_runs",
    }
