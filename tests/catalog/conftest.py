"""Here `catalog` is every kind of database in turn: what a test of this folder says, it says of them all."""

from __future__ import annotations

import pytest

from mutoscope.platform.catalog import Catalog


@pytest.fixture
def catalog(any_catalog: Catalog) -> Catalog:
    """An empty catalog, open; on SQLite and on Postgres."""
    return any_catalog
