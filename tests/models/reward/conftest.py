"""Instances are loaded once a session; they are immutable."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from mutoscope.models.registry import get_card
from mutoscope.models.starter.folders import starter_folder
from mutoscope.platform.engine import numerics
from mutoscope.platform.engine.instance import Instance, load_instance
from tests.support.tiny_reward import make


@pytest.fixture(scope="session", autouse=True)
def contract() -> None:
    """What a worker does before its first kernel."""
    numerics.configure_torch(numerics.cpu_contract(threads=1))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Instance]:
    """A reward card over random weights."""
    root = tmp_path_factory.mktemp("reward")
    return cache(lambda card_id: load_instance(get_card(card_id), make(root / card_id, card_id)))


@pytest.fixture(scope="session")
def scorer() -> Instance:
    """The scene scorer with the weights that ship."""
    folder: Path | None = starter_folder("reward-scene")
    assert folder is not None
    return load_instance(get_card("reward-scene"), folder)
