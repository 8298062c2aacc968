"""Folders are written and instances loaded once a session; both are immutable."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from mutoscope.models.wan.card import CARD, T2V
from mutoscope.platform.engine import numerics
from mutoscope.platform.engine.instance import Instance, load_instance
from tests.models.wan.folders import Layout, write_folder


@pytest.fixture(scope="session", autouse=True)
def contract() -> None:
    """What a worker does before its first kernel."""
    numerics.configure_torch(numerics.cpu_contract(threads=1))


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Layout], Path]:
    root = tmp_path_factory.mktemp("wan")
    return cache(lambda layout: write_folder(root / layout.name, layout))


@pytest.fixture(scope="session")
def instance_of(folder_of: Callable[[Layout], Path]) -> Callable[[Layout], Instance]:
    """The resident instance of a layout, under the card that serves it."""
    return cache(lambda layout: load_instance(T2V if layout.text else CARD, folder_of(layout)))


@pytest.fixture(scope="session")
def image() -> NDArray[np.uint8]:
    """Noise of another size and shape than the videos, so that resizing is on the path."""
    return np.random.default_rng(0).integers(0, 256, (40, 52, 3), dtype=np.uint8)
