"""Whatever goes wrong with a database URL, its password is in no message, traceback or log."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator

import psycopg
import pytest

from mutoscope.platform.catalog import Catalog
from mutoscope.platform.catalog.database import without_password
from mutoscope.platform.errors import CatalogError, InvalidInput, MutoscopeError
from tests.support.servers import PostgresServer, free_ports

SECRET = "hush@x:y/z"
QUOTED = "hush%40x%3Ay%2Fz"


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    """Host and port of a server that asks its user ``locked`` for a password."""
    server = PostgresServer()
    rules = server._data / "pg_hba.conf"
    rules.write_text(f"host all locked 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
    server.start()
    url = server.url().replace("+psycopg", "")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create role locked login password 'another one'")
    yield url.partition("@")[2].partition("/")[0]
    server.close()


def everything_said(
    call: Callable[[], object], caplog: pytest.LogCaptureFixture
) -> tuple[MutoscopeError, str]:
    """The error of a call that must fail, and all that a person or a log could see of it."""
    with caplog.at_level(logging.DEBUG), pytest.raises(MutoscopeError) as failed:
        call()
    seen = "".join(traceback.format_exception(failed.value))
    return failed.value, "\n".join([str(failed.value), repr(failed.value), seen, caplog.text])


def assert_hushed(text: str) -> None:
    assert "hush" not in text


@pytest.mark.parametrize("call", [Catalog.open, Catalog.migrate])
def test_a_wrong_password(
    guarded: str, caplog: pytest.LogCaptureFixture, call: Callable[[str], object]
) -> None:
    url = f"postgresql+psycopg://locked:{QUOTED}@{guarded}/postgres"
    error, said = everything_said(lambda: call(url), caplog)
    assert isinstance(error, CatalogError)
    assert "password authentication failed" in str(error)
    assert f"locked:***@{guarded}" in str(error)
    assert_hushed(said)


@pytest.mark.parametrize("where", ["user:{secret}@{host}/db", "user@{host}/db?password={secret}"])
def test_an_unreachable_host(caplog: pytest.LogCaptureFixture, where: str) -> None:
    host = f"127.0.0.1:{free_ports(1)[0]}"
    url = f"postgresql+psycopg://{where.format(secret=QUOTED, host=host)}"
    error, said = everything_said(lambda: Catalog.open(url), caplog)
    assert "refused" in str(error)
    assert host in str(error)
    assert_hushed(said)


@pytest.mark.parametrize(
    "url",
    [
        f"nosuchdialect://user:{QUOTED}@host/db",
        f"postgresql+nosuchdriver://user:{QUOTED}@host/db",
        f"postgresql://user:{SECRET}@host:port/db",
        f"mysql://user:{QUOTED}@host/db?ssl=1",
        f"user:{SECRET}@host/db",
        "postgresql://user:its@hush@host/db",
        "postgresql://user:its@hush/@host/db",
        f"postgresql://user@host:port/db?password={QUOTED}",
    ],
)
def test_a_url_that_cannot_be_used(caplog: pytest.LogCaptureFixture, url: str) -> None:
    error, said = everything_said(lambda: Catalog.open(url), caplog)
    assert isinstance(error, InvalidInput)
    assert_hushed(said)


def test_a_url_shows_all_but_the_password(postgres_catalog_url: str) -> None:
    catalog = Catalog.open(postgres_catalog_url.replace("postgres@", f"postgres:{QUOTED}@"))
    assert catalog.url == postgres_catalog_url.replace("postgres@", "postgres:***@")
    assert_hushed(repr(catalog) + repr(catalog._database.engine) + repr(catalog._database.engine.pool))
    catalog.close()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:a@b:c@host/db fails", "postgresql://me:***@host/db fails"),
        ("host=x password=abc user=y", "host=x password=*** user=y"),
        ("sqlite:////home/me@work/catalog.db", "sqlite:////home/me@work/catalog.db"),
        ("see https://example.org/a:b", "see https://example.org/a:b"),
    ],
)
def test_what_is_hidden(text: str, shown: str) -> None:
    assert without_password(text) == shown
