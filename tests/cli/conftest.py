"""A home of its own for each test, and the command run in this process as a shell would run it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.cli.main import main
from mutoscope.platform.settings import get_settings
from tests.support.empty import put_catalog


@dataclass(frozen=True)
class Result:
    """How a command ended: exit code, and what it wrote."""

    code: int
    out: str
    err: str


Command = Callable[..., Result]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """An empty home that this process's settings name. The environment is as before afterwards."""
    before = dict(os.environ)
    folder = tmp_path / "home"
    os.environ["MUTOSCOPE_HOME"] = str(folder)
    os.environ.pop("PREFECT_API_URL", None)
    get_settings.cache_clear()
    try:
        yield folder
    finally:
        os.environ.clear()
        os.environ.update(before)
        get_settings.cache_clear()


@pytest.fixture
def catalog(home: Path) -> Iterator[Catalog]:
    """The home's catalog, empty."""
    put_catalog(home)
    opened = Catalog.open(get_settings().database_url)
    yield opened
    opened.close()


@pytest.fixture
def store(home: Path) -> ArtifactStore:
    return ArtifactStore.open(get_settings().store_url)


@pytest.fixture
def mutoscope(capsys: pytest.CaptureFixture[str]) -> Command:
    """The command: `mutoscope("ls", "--json")`."""

    def run(*arguments: str) -> Result:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Result(int(ended.value.code or 0), captured.out, captured.err)

    return run
