"""A host that falls silent in the middle of a transaction holds up nobody for long. On Postgres; SQLite's
writers are processes of one machine, whose locks die with them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import text, update

from mutoscope.platform.catalog import Catalog, database
from mutoscope.platform.catalog.tables import workflow_runs
from mutoscope.platform.errors import CatalogUnavailable

TIMEOUT = text("show idle_in_transaction_session_timeout")


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


def test_what_reads_files_between_statements_may_take_its_time(other: Catalog) -> None:
    with other._database.read() as connection:
        assert connection.execute(TIMEOUT).scalar_one() == f"{database.SILENT_SECONDS}s"
    with other._database.read(at_leisure=True) as connection:
        assert connection.execute(TIMEOUT).scalar_one() == "0"
    with other.bulk() as bulk:
        assert bulk._connection.execute(TIMEOUT).scalar_one() == "0"
    with other._database.write() as connection:
        assert connection.execute(TIMEOUT).scalar_one() == f"{database.SILENT_SECONDS}s"


def test_a_dead_peer_is_noticed(other: Catalog) -> None:
    with other._database.read() as connection:
        assert connection.execute(text("show tcp_keepalives_idle")).scalar_one() == "15"
