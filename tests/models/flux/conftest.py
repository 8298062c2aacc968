"""Tiny FLUX folders, written once a session."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from mutoscope.models.flux.card import CARD
from mutoscope.platform.engine import numerics
from mutoscope.platform.engine.instance import Instance, load_instance
from tests.support.tiny_flux import save_tiny_flux

FOLDERS: dict[str, dict[str, Any]] = {
    "plain": {"scheduler": {}},
    "shift 3": {"scheduler": {"shift": 3.0}},
    "dev": {
        "scheduler": {
            "use_dynamic_shifting": True,
            "shift": 3.0,
            "base_image_seq_len": 16,
            "max_image_seq_len": 64,
        },
        "guidance_embeds": True,
        "published_tokenizers": True,
    },
    "no recipe": {"recipe": {}},
}
"""How each folder is made. "dev" is laid out as FLUX.1-dev: dynamic shift, embedded guidance, tokenizers."""


@pytest.fixture(scope="session", autouse=True)
def _contract() -> None:
    numerics.configure_torch(numerics.cpu_contract(1))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a name in FOLDERS, made when first asked for. Read only."""

    @cache
    def folder(name: str) -> Path:
        return save_tiny_flux(tmp_path_factory.mktemp("flux") / "folder", **FOLDERS[name])

    return folder


@pytest.fixture(scope="session")
def instance(tiny: Callable[[str], Path]) -> Callable[[str], Instance]:
    """The resident instance of a folder."""
    return cache(lambda name: load_instance(CARD, tiny(name)))


@pytest.fixture
def copy(tiny: Callable[[str], Path], tmp_path: Path) -> Path:
    """A copy of the plain folder, to be damaged."""
    return Path(shutil.copytree(tiny("plain"), tmp_path / "folder"))
