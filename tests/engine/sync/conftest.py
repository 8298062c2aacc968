"""A tiny folder of flux, and a bench on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.sync.bench import Bench
from tests.support.tiny_flux import save_tiny_flux


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_flux(tmp_path_factory.mktemp("flux") / "folder")


@pytest.fixture
def bench(folder: Path) -> Bench:
    return Bench(folder)
