"""Every card's tiny instance, made and calibrated once a session."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from mutoscope.platform.engine import numerics
from mutoscope.platform.engine.calibration import calibrate
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.parity.check import check
from mutoscope.platform.engine.parity.report import Report
from tests.support.cards import tiny_folder, tiny_instance, variants


@pytest.fixture(scope="session", autouse=True)
def _contract() -> None:
    """What a worker does before its first kernel."""
    numerics.configure_torch(numerics.cpu_contract(1))


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    root = tmp_path_factory.mktemp("folders")
    return cache(lambda card_id: tiny_folder(card_id, root / card_id))


@pytest.fixture(scope="session")
def instance_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Instance]:
    """A card's instance as a worker serves it."""
    root = tmp_path_factory.mktemp("instances")

    @cache
    def prepared(card_id: str) -> Instance:
        instance = tiny_instance(card_id, root / card_id)
        return calibrate(instance, most=4).prepare(instance)

    return prepared


@pytest.fixture(scope="session")
def report_of(instance_of: Callable[[str], Instance]) -> Callable[[str], Report]:
    """What the gates say of a card."""
    return cache(lambda card_id: check(instance_of(card_id), variants=variants(card_id)[:2], most_orders=2))
