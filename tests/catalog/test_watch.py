"""The cheap question whether anything was committed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mutoscope.platform.artifacts import ArtifactRef
from mutoscope.platform.catalog import Catalog


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/catalog.db"
    Catalog.migrate(url)
    return url


@pytest.fixture
def catalog(url: str) -> Iterator[Catalog]:
    catalog = Catalog.open(url)
    yield catalog
    catalog.close()


def commit(catalog: Catalog, digit: str) -> None:
    catalog.artifacts.record(ArtifactRef(digit * 64, "text", "text/plain", 1))


def test_sees_commits_of_its_own_catalog_and_of_others(url: str, catalog: Catalog) -> None:
    watch, other = catalog.watch(), Catalog.open(url)
    assert watch.changed(), "the first look"
    assert not watch.changed()
    commit(catalog, "a")
    assert watch.changed()
    commit(other, "b")
    commit(other, "c")
    assert watch.changed()
    assert not watch.changed(), "each change once"
    watch.close()
    other.close()


def test_reading_is_no_change(catalog: Catalog) -> None:
    watch = catalog.watch()
    watch.changed()
    catalog.artifacts.list()
    assert not watch.changed()
    watch.close()
