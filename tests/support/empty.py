"""An empty, migrated catalog to be copied: migrating one takes longer than most tests."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from mutoscope.platform.catalog import Catalog


@cache
def empty_catalog() -> Path:
    """A migrated SQLite file without rows; one for each process."""
    folder = Path(tempfile.mkdtemp(prefix="mutoscope-catalog-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    Catalog.migrate(f"sqlite:///{folder / 'catalog.db'}")
    return folder / "catalog.db"


def put_catalog(home: Path) -> None:
    """The catalog of a home that has none yet."""
    home.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(empty_catalog(), home / "catalog.db")
