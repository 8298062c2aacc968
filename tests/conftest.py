"""Fixtures that several parts share. Prefect keeps away from the user's own profile and calls nobody."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.ids import new_id
from tests.support import empty
from tests.support.groups import SHARED_NOW, GroupScheduling, together
from tests.support.servers import Databases, PostgresServer, S3Server

# Before anything imports Prefect, which reads them once.
os.environ["PREFECT_HOME"] = tempfile.mkdtemp(prefix="mutoscope-prefect-")
os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
os.environ["DO_NOT_TRACK"] = "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    together(items)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling | None:
    return GroupScheduling(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """After what the modules have made of it, what the group shares."""
    SHARED_NOW.leave(item, nextitem)


@pytest.fixture(scope="module")
def prefect_server() -> None:
    """A Prefect server, the same for all files that ask for one. It takes about ten seconds to start, and
    time from everything beside it as long as it runs.
    """
    SHARED_NOW.get("prefect_server", _prefect_server)


@contextmanager
def _prefect_server() -> Iterator[None]:
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
    from prefect.testing.utilities import prefect_test_harness

    # The variable that switches heartbeats off does not exist; None does. A heartbeat thread outlives its
    # test.
    with (
        prefect_test_harness(server_startup_timeout=600),
        temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}),
    ):
        yield


@pytest.fixture(scope="session")
def empty_catalog() -> Path:
    """A migrated SQLite file without rows, to be copied: a test's own catalog then costs a millisecond."""
    return empty.empty_catalog()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with an empty, migrated catalog; the store's folder appears with the first artifact."""
    folder = tmp_path / ".mutoscope"
    empty.put_catalog(folder)
    return folder


@pytest.fixture
def store(home: Path) -> ArtifactStore:
    """The file store of `home`."""
    return ArtifactStore.open((home / "store").as_uri())


@pytest.fixture
def catalog_url(home: Path) -> str:
    """The catalog of `home`, for tests that open it themselves or hand it to other processes."""
    return f"sqlite:///{home / 'catalog.db'}"


@pytest.fixture
def catalog(catalog_url: str) -> Iterator[Catalog]:
    """The catalog of `home`, open."""
    opened = Catalog.open(catalog_url)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """One S3 server for the session. It is shared: a test that stops a server starts its own."""
    server = S3Server()
    server.start()
    yield server
    server.close()


@pytest.fixture
def s3_bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """URL of a bucket nobody has used; the process's environment holds its endpoint and credentials."""
    for name, value in s3_server.writer.environment(s3_server.endpoint).items():
        monkeypatch.setenv(name, value)
    bucket = f"b-{new_id()}"
    s3_server.create_bucket(bucket)
    return f"s3://{bucket}"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One Postgres for the session. It is shared: a test that stops a server starts its own."""
    server = PostgresServer()
    server.start()
    yield server
    server.close()


@pytest.fixture(scope="session")
def databases(postgres_server: PostgresServer) -> Iterator[Databases]:
    """Where tests make databases of their own."""
    made = Databases(postgres_server.url())
    yield made
    made.close()


@pytest.fixture(scope="session")
def empty_postgres_catalog(databases: Databases) -> str:
    """A migrated database without rows, to be copied."""
    url = databases.create()
    Catalog.migrate(url)
    return url


@pytest.fixture
def postgres_catalog_url(databases: Databases, empty_postgres_catalog: str) -> Iterator[str]:
    """An empty, migrated catalog on Postgres, the test's own."""
    url = databases.create(empty_postgres_catalog)
    yield url
    databases.drop(url)


@pytest.fixture(params=["sqlite", "postgres"])
def any_catalog_url(request: pytest.FixtureRequest) -> str:
    """An empty, migrated catalog on each kind of database in turn."""
    fixture = "catalog_url" if request.param == "sqlite" else "postgres_catalog_url"
    url: str = request.getfixturevalue(fixture)
    return url


@pytest.fixture
def any_catalog(any_catalog_url: str) -> Iterator[Catalog]:
    """The catalog at `any_catalog_url`, open."""
    opened = Catalog.open(any_catalog_url)
    yield opened
    opened.close()
