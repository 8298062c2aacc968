"""Here `catalog` is every kind of database in turn: what a test of this folder says, it says of them all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mutoscope.platform.catalog import Catalog


@pytest.fixture
def catalog(any_catalog: Catalog) -> Catalog:
    """An empty catalog, open; on SQLite and on Postgres."""
    return any_catalog


@pytest.fixture
def sqlite_catalog(catalog_url: str) -> Iterator[Catalog]:
    """For what is about SQLite, or about its file."""
    opened = Catalog.open(catalog_url)
    yield opened
    opened.close()
