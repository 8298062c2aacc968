"""A host that falls silent in the middle of a transaction holds up nobody for long. On Postgres; SQLite's
writers are processes of one machine, whose locks die with them."""

from __future__ import annotations

import select
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import text, update

from mutoscope.platform.catalog import Catalog, database
from mutoscope.platform.catalog.tables import workflow_runs
from mutoscope.platform.errors import CatalogUnavailable
from tests.support.servers import Databases

TIMEOUT = text("show idle_in_transaction_session_timeout")
WHOLE = text("show transaction_timeout")


@pytest.fixture
def other(postgres_catalog_url: str) -> Iterator[Catalog]:
    """Another process's view of the catalog."""
    opened = Catalog.open(postgres_catalog_url)
    yield opened
    opened.close()


def test_rows_of_a_silent_transaction_are_free_again(
    postgres_catalog_url: str, other: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = other.workflows.start("text_to_image", {})
    monkeypatch.setattr(database, "SILENT_SECONDS", 0.2)
    silent = Catalog.open(postgres_catalog_url)

    def touch(catalog: Catalog, tag: str) -> None:
        with catalog._database.write() as connection:
            connection.execute(update(workflow_runs).where(workflow_runs.c.id == run_id).values(state=tag))
            if catalog is silent:
                touch(other, "failed")  # waits for the row, until the server ends the silent transaction

    with pytest.raises(CatalogUnavailable, match="does not answer"):
        touch(silent, "cancelled")
    assert other.workflows.get(run_id).state == "failed", "what the silent one wrote is not there"
    with silent._database.read() as connection:
        assert connection.execute(TIMEOUT).scalar_one() == "200ms", "its next transaction has a session again"
    silent.close()


def test_rows_of_a_statement_that_was_cut_off_are_free_again(
    postgres_catalog_url: str, other: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages of one statement arrive in part: the server waits for the rest, which is not silence to it."""
    run_id = other.workflows.start("text_to_image", {})
    monkeypatch.setattr(database, "SILENT_SECONDS", 0.1)
    monkeypatch.setattr(database, "WRITING_SECONDS", 0.5)
    cut_off = Catalog.open(postgres_catalog_url)

    def touch() -> None:
        with cut_off._database.write() as connection:
            driver: Any = connection.connection.driver_connection
            send_in_part(driver, f"update workflow_runs set state = 'cancelled' where id = '{run_id}'")
            monkeypatch.setattr(database, "WRITING_SECONDS", 15)
            other.workflows.finish(run_id, "failed")  # waits for the row
            driver.pgconn.exit_pipeline_mode()
            connection.execute(TIMEOUT)

    with pytest.raises(CatalogUnavailable, match="does not answer"):
        touch()
    assert other.workflows.get(run_id).state == "failed"
    cut_off.close()


def send_in_part(driver: Any, statement: str) -> None:
    """The statement is executed, but the message that ends it never sent."""
    driver.pgconn.enter_pipeline_mode()
    driver.pgconn.send_query_params(statement.encode(), None)
    driver.pgconn.send_flush_request()
    driver.pgconn.flush()
    answer = select.poll()
    answer.register(driver.fileno(), select.POLLIN)
    assert answer.poll(10_000), "the server has done its part"


def test_what_reads_files_between_statements_may_take_its_time(other: Catalog) -> None:
    with other._database.read() as connection:
        assert connection.execute(TIMEOUT).scalar_one() == f"{database.SILENT_SECONDS}s"
        assert connection.execute(WHOLE).scalar_one() == "0", "a long answer holds nobody up"
    with other._database.read(at_leisure=True) as connection:
        assert connection.execute(TIMEOUT).scalar_one() == "0"
    with other.bulk() as bulk:
        assert bulk._connection.execute(TIMEOUT).scalar_one() == "0"
        assert bulk._connection.execute(WHOLE).scalar_one() == "0"
    with other._database.write() as connection:
        assert connection.execute(TIMEOUT).scalar_one() == f"{database.SILENT_SECONDS}s"
        assert connection.execute(WHOLE).scalar_one() == f"{database.WRITING_SECONDS}s"
    with other._database.glance() as connection:
        assert connection.execute(TIMEOUT).scalar_one() == f"{database.SILENT_SECONDS}s"
        assert connection.execute(WHOLE).scalar_one() == "0"


def test_a_migration_may_take_its_time(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also beyond what other transactions that write may take: of a large catalog it does."""
    monkeypatch.setattr(database, "WRITING_SECONDS", 0.001)
    Catalog.migrate(databases.create())


def test_a_dead_peer_is_noticed(other: Catalog) -> None:
    with other._database.read() as connection:
        assert connection.execute(text("show tcp_keepalives_idle")).scalar_one() == "15"
