"""Folders are written and instances loaded once a session; both are immutable."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from mutoscope.models.cosmos3.card import CARD
from mutoscope.platform.engine import numerics
from mutoscope.platform.engine.instance import Instance, load_instance
from tests.support.tiny_cosmos3 import save

FOLDERS: dict[str, dict[str, Any]] = {
    "qwen3": {},
    "nemotron": {"backbone": "nemotron", "seed": 5},
    "native": {"native_schedule": True},
    "bare": {"system_prompt": False},
}
"""How each folder is made: either backbone, evenly spaced noise levels, no system prompt."""


@pytest.fixture(scope="session", autouse=True)
def contract() -> None:
    """What a worker does before its first kernel."""
    numerics.configure_torch(numerics.cpu_contract(threads=1))


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    root = tmp_path_factory.mktemp("cosmos3")
    return cache(lambda name: save(root / name, **FOLDERS[name]))


@pytest.fixture(scope="session")
def instance_of(folder_of: Callable[[str], Path]) -> Callable[[str], Instance]:
    return cache(lambda name: load_instance(CARD, folder_of(name)))
