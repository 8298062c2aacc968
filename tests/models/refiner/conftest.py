"""Tiny refiners, loaded once a session."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from mutoscope.models.refiner.card import CARD
from mutoscope.platform.engine import numerics
from mutoscope.platform.engine.instance import Instance, load_instance
from tests.support.tiny_lm import save_tiny_lm

FOLDERS: dict[str, dict[str, Any]] = {
    "qwen2": {"seed": 3},
    "llama": {"seed": 3, "family": "llama"},
    "chat": {"seed": 5, "chat": True, "recipe": {"max_new_tokens": 6}},
    "no end": {"seed": 3, "eos_token_id": 4},
}
"""How each folder is made. "no end" stops at a token that no answer here has."""

WEIGHTS = {"llm": "a" * 64, "tokenizer": "b" * 64}


@pytest.fixture(scope="session", autouse=True)
def _contract() -> None:
    numerics.configure_torch(numerics.cpu_contract(1))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a name in FOLDERS. Read only."""

    @cache
    def folder(name: str) -> Path:
        return save_tiny_lm(tmp_path_factory.mktemp("lm") / "folder", **FOLDERS[name])

    return folder


@pytest.fixture(scope="session")
def instance(tiny: Callable[[str], Path]) -> Callable[[str], Instance]:
    """The resident instance of a folder."""
    return cache(lambda name: load_instance(CARD, tiny(name), weights=WEIGHTS))
