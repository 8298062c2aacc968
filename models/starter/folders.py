"""Where the weights lie that ship with the package, or with one it was installed with. No torch."""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from mutoscope.models.reward.ocr.folder import packaged_folder
from mutoscope.models.unified.assembly import assemble

WEIGHTS = Path(__file__).with_name("weights")

_INDICES = ("model_index.json", "config.json")
"""What a folder of weights holds: a pipeline's or a single model's."""

_COMPOSED: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "unirl-qwenflux": ("flux-t2i", {"refiner": "refiner-lm"}),
}
"""Composed cards whose weights are those of others: the generator's card, and each refiner's."""


def starter_folder(card_id: str) -> Path | None:
    """The card folder of starter weights for a card, or None if there are none for it.

    A composed card's folder is put together when it is first asked for, of links to the folders of its parts,
    and lasts as long as the process.
    """
    if card_id in _COMPOSED:
        return _assembled(card_id)
    if card_id == "reward-ocr":
        return packaged_folder()
    folder = WEIGHTS / card_id
    return folder if any((folder / index).is_file() for index in _INDICES) else None


@lru_cache
def _assembled(card_id: str) -> Path:
    generator, refiners = _COMPOSED[card_id]
    place = TemporaryDirectory(prefix="mutoscope-starter-")
    atexit.register(place.cleanup)
    parts = {part: WEIGHTS / source for part, source in refiners.items()}
    return assemble(Path(place.name) / card_id, WEIGHTS / generator, parts, copy=False)
