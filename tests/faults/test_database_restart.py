"""Postgres restarted or killed under the catalog: a clear line, nothing half-written, and the next works."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event

from mutoscope.platform.catalog import Catalog
from mutoscope.platform.errors import CatalogError
from tests.support.contradictions import contradictions
from tests.support.deadline import until
from tests.support.parts import later
from tests.support.records import CARD, a_spec, absent, an_artifact, claim, queue
from tests.support.servers import Databases, PostgresServer

IMAGE, NET = an_artifact("image"), an_artifact("net", "weights")

ENDINGS: dict[str, Callable[[PostgresServer], None]] = {
    "restarted": PostgresServer.restart,
    "killed": lambda server: (server.kill(), server.start())[0],
}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of this module's own, to be hurt."""
    server = PostgresServer()
    server.start()
    yield server
    server.close()


@pytest.fixture(scope="module")
def empty(server: PostgresServer) -> str:
    url = Databases(server.url()).create()
    Catalog.migrate(url)
    return url


@pytest.fixture
def catalog(server: PostgresServer, empty: str) -> Iterator[Catalog]:
    """An empty catalog on it, whose commits reach the disk: a killed server keeps what it acknowledged."""
    databases = Databases(server.url())
    catalog = Catalog.open(databases.create(empty) + "?options=-csynchronous_commit%3Don")
    yield catalog
    catalog.close()
    databases.close()


@contextmanager
def hurt_after(catalog: Catalog, statement: str, hurt: Callable[[], None]) -> Iterator[list[str]]:
    """Hurt the server right after the first statement that matches; yields those that did."""
    struck: list[str] = []

    def strike(connection: Any, cursor: Any, text: str, *rest: object) -> None:
        if not struck and re.match(statement, text):
            struck.append(text)
            hurt()

    engine = catalog._database.engine
    event.listen(engine, "after_cursor_execute", strike)
    yield struck
    event.remove(engine, "after_cursor_execute", strike)


def enqueue(catalog: Catalog) -> None:
    catalog.runs.enqueue(a_spec(inputs={"image": IMAGE}), present=absent)


def succeed(catalog: Catalog) -> None:
    (run,) = catalog.runs.list(state="running")
    catalog.runs.succeed(run.id, "worker-a", {"image": IMAGE})


def record(catalog: Catalog) -> None:
    catalog.runs.record_completed("import", card=CARD, generated={"weights:net": NET})


@pytest.mark.parametrize(
    ("call", "statement", "ending"),
    [
        (enqueue, "INSERT INTO artifacts", "killed"),
        (succeed, "UPDATE runs", "restarted"),
        (succeed, "INSERT INTO edges", "killed"),
        later(enqueue, "INSERT INTO artifacts", "restarted"),
        later(enqueue, "INSERT INTO edges", "killed"),
        later(enqueue, "INSERT INTO edges", "restarted"),
        later(succeed, "UPDATE runs", "killed"),
        later(succeed, "INSERT INTO edges", "restarted"),
        later(record, "INSERT INTO runs", "killed"),
        later(record, "INSERT INTO runs", "restarted"),
    ],
)
def test_in_the_middle_of_a_transaction(
    server: PostgresServer, catalog: Catalog, call: Callable[[Catalog], None], statement: str, ending: str
) -> None:
    if call is succeed:
        queue(catalog)
        claim(catalog)
    before = catalog.runs.list()
    with hurt_after(catalog, statement, lambda: ENDINGS[ending](server)) as struck:
        with pytest.raises(CatalogError, match=r"does not answer .*check the database") as told:
            call(catalog)
        assert struck, "the server must have been hurt"
    assert "\n" not in str(told.value)
    assert catalog.runs.list() == before, "nothing half-written, and the next call works"
    assert catalog.artifacts.list() == []
    call(catalog)
    assert len(catalog.runs.list()) == 1
    assert contradictions(catalog) == {}


@pytest.mark.parametrize("ending", ENDINGS)
def test_between_two_calls_nobody_notices(server: PostgresServer, catalog: Catalog, ending: str) -> None:
    run = queue(catalog)
    ENDINGS[ending](server)
    assert catalog.runs.get(run.id) == run, "what was acknowledged is there"
    claim(catalog)


def test_while_it_is_down_the_error_says_so(server: PostgresServer, catalog: Catalog) -> None:
    server.stop()
    try:
        with pytest.raises(CatalogError, match=r"does not answer .*refused"):
            catalog.runs.list()
    finally:
        server.start()
    assert catalog.runs.list() == []


def test_a_watch_hears_again(server: PostgresServer, catalog: Catalog) -> None:
    watch = catalog.watch()
    assert watch.changed(), "the first look"
    server.restart()
    until(watch.changed, "the loss is a change")
    until(watch.changed, "and so is the new connection")
    until(lambda: not watch.changed(), "silence")
    queue(catalog)
    until(watch.changed, "what is queued after the restart is heard")
    watch.close()


@pytest.mark.parametrize("ending", sorted(ENDINGS))
def test_who_waits_for_a_run_hears_of_its_end_after_a_restart(
    server: PostgresServer, catalog: Catalog, ending: str
) -> None:
    run, states = queue(catalog), list[str]()
    ticket = catalog.ends.follow(run.id, lambda seen: states.append(seen.run.state if seen else "none"))
    catalog.ends.look(ticket)
    ENDINGS[ending](server)
    claim(catalog)
    until(lambda: states[-1] == "running", "the wait goes on")
    catalog.ends.leave(ticket)
