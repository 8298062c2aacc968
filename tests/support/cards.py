"""Every registered card as a tiny instance: what the template suite in `tests/cards` runs on.

A card gets the suite through a line in TINY, which names the module that writes its folder:

    make(folder, card_id, seed=0)   writes a complete folder of random weights and returns it
    variants(card_id)               optional: further parameter sets worth mixing with the example request
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mutoscope.models.registry import cards
from mutoscope.platform import ids
from mutoscope.platform.engine.card import Card
from mutoscope.platform.engine.instance import Instance, load_instance

TINY: Mapping[str, str] = {
    "cosmos3-omni": "tests.support.tiny_cosmos3",
    "flux-t2i": "tests.support.tiny_flux",
    "ltx2-av": "tests.support.tiny_ltx2",
    "multi-expert": "tests.support.tiny_unified",
    "refiner-lm": "tests.support.tiny_lm",
    "reward-clip": "tests.support.tiny_reward",
    "reward-ocr": "tests.support.tiny_reward",
    "reward-scene": "tests.support.tiny_reward",
    "unirl-qwenflux": "tests.support.tiny_unified",
    "wan-adaptive": "tests.support.tiny_wan",
    "wan-i2v": "tests.support.tiny_wan",
    "wan-t2v": "tests.support.tiny_wan",
}
"""Card id to the module with its folder; imported when asked for."""


def served() -> dict[str, Card]:
    """Registered cards that serve requests; a trainer's run takes minutes, and it has tests of its own."""
    return {name: card for name, card in cards().items() if card.run_kind != "train_step"}


def unmade() -> list[str]:
    """Cards with components that no module writes a folder for, and lines that name no card."""
    known = served()
    without = [name for name, card in known.items() if card.components and name not in TINY]
    return without + [name for name in TINY if name not in known]


def tiny_folder(card_id: str, folder: Path, seed: int = 0) -> Path:
    """A folder of random weights for a card."""
    made: Path = importlib.import_module(TINY[card_id]).make(folder, card_id, seed)
    return made


def tiny_instance(card_id: str, folder: Path) -> Instance:
    """A card loaded from its tiny folder, which is written there; one without components from nothing.

    Its components have digests, as in a worker: a rollout says which weights it was sampled with.
    """
    card = served()[card_id]
    weights = {part.name: ids.sha256(f"{card_id}/{part.name}".encode()) for part in card.components}
    if not card.components:
        return load_instance(card, {}, recipe={})
    return load_instance(card, tiny_folder(card_id, folder), weights=weights)


def variants(card_id: str) -> list[dict[str, Any]]:
    """Parameter sets to mix; the example's own if the card's module names none."""
    module = importlib.import_module(TINY[card_id]) if card_id in TINY else None
    named = getattr(module, "variants", None)
    return list(named(card_id)) if named is not None else [{}]
