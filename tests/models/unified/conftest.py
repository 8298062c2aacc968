"""Tiny composed cards, loaded once a session."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from mutoscope.models.registry import get_card
from mutoscope.platform.engine import numerics
from mutoscope.platform.engine.instance import Instance, load_instance
from tests.support.tiny_unified import save_tiny_unified

PARTS = {
    "unirl-qwenflux": ("refiner",),
    "multi-expert": ("refiner_1", "refiner_2", "refiner_3"),
}
"""Refiners of each card's folder, all different."""


@pytest.fixture(scope="session", autouse=True)
def _contract() -> None:
    numerics.configure_torch(numerics.cpu_contract(1))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a card; the folders of its parts lie beside it, in `folder.parts`. Read only."""

    @cache
    def folder(card_id: str) -> Path:
        return save_tiny_unified(tmp_path_factory.mktemp("unified") / "folder", PARTS[card_id])

    return folder


@pytest.fixture(scope="session")
def instance(tiny: Callable[[str], Path]) -> Callable[[str], Instance]:
    """The resident instance of a composed card, with a digest for each component."""
    return cache(lambda card_id: _named(card_id, tiny(card_id)))


@pytest.fixture(scope="session")
def part(tiny: Callable[[str], Path]) -> Callable[[str, str], Instance]:
    """One part of a composed card, resident by itself."""

    @cache
    def resident(card_id: str, name: str) -> Instance:
        folder = tiny(card_id).with_name("folder.parts") / name
        return _named("flux-t2i" if name == "generator" else "refiner-lm", folder)

    return resident


def _named(card_id: str, folder: Path) -> Instance:
    """The instance of a folder, with a digest for each component."""
    card = get_card(card_id)
    weights = {spec.name: f"{at:064x}" for at, spec in enumerate(card.components)}
    return load_instance(card, folder, weights=weights)
