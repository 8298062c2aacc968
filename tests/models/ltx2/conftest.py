"""Folders are written, and instances and pipelines loaded, once a session; nothing changes them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from mutoscope.models.ltx2.card import CARD
from mutoscope.platform.engine import numerics
from mutoscope.platform.engine.instance import Instance, load_instance
from tests.models.ltx2.oracle import Oracle
from tests.support.tiny_ltx2 import save_tiny_ltx2


@pytest.fixture(scope="session", autouse=True)
def contract() -> None:
    """What a worker does before its first kernel."""
    numerics.configure_torch(numerics.cpu_contract(threads=1))


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a layout: "2.0" or "2.3"."""
    root = tmp_path_factory.mktemp("ltx2")
    return cache(
        lambda layout: save_tiny_ltx2(root / layout, newer=layout == "2.3", recipe={"stg_blocks": [1]})
    )


@pytest.fixture(scope="session")
def instance_of(folder_of: Callable[[str], Path]) -> Callable[[str], Instance]:
    return cache(lambda layout: load_instance(CARD, folder_of(layout)))


@pytest.fixture(scope="session")
def oracle_of(folder_of: Callable[[str], Path]) -> Callable[[str], Oracle]:
    return cache(lambda layout: Oracle.load(folder_of(layout)))
