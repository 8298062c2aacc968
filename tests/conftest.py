"""Fixtures that several parts share. Prefect keeps away from the user's own profile and calls nobody."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog

# Before anything imports Prefect, which reads them once.
os.environ["PREFECT_HOME"] = tempfile.mkdtemp(prefix="mutoscope-prefect-")
os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
os.environ["DO_NOT_TRACK"] = "1"


@pytest.fixture(scope="session")
def prefect_server() -> Iterator[None]:
    """A Prefect server for the session. It takes about ten seconds to start, so only tests of the seam ask
    for it.
    """
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
def empty_catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file without rows, to be copied: a test's own catalog then costs a millisecond."""
    path = tmp_path_factory.mktemp("template") / "catalog.db"
    Catalog.migrate(f"sqlite:///{path}")
    return path


@pytest.fixture
def home(tmp_path: Path, empty_catalog: Path) -> Path:
    """A home with an empty, migrated catalog; the store's folder appears with the first artifact."""
    folder = tmp_path / ".mutoscope"
    folder.mkdir()
    shutil.copyfile(empty_catalog, folder / "catalog.db")
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
