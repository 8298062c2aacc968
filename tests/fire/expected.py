"""What a film must consist of, by one engine in one process that nothing happens to."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from mutoscope.platform import ids
from mutoscope.platform.artifacts import codecs
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance, load_instance
from mutoscope.platform.engine.request import Request, Result
from tests.fire.shape import LINKS, PER_REEL, REELS, STRIPS
from tests.support.tinycard.card import CARD


@lru_cache
def film(weights: Path, seed: int) -> dict[str, str]:
    """Digest by output name of `fire_film(seed)` on a folder of the test card's weights."""
    maker = _Maker(load_instance(CARD, weights))
    digests = {}
    for reel in range(REELS):
        first = seed + reel * PER_REEL
        opening = maker.make(first)
        for strip in range(STRIPS):
            picture = opening
            for number in range(LINKS):
                picture = maker.make(first + 1 + strip * LINKS + number, picture)
            digests[f"reel_{reel}_strip_{strip}"] = _digest(picture)
    return digests


class _Maker:
    def __init__(self, instance: Instance) -> None:
        self._instance, self._engine = instance, Engine()

    def make(self, seed: int, image: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        """The picture of one run."""
        inputs = {} if image is None else {"image": image}
        parameters = CARD.resolve({}, self._instance.recipe)
        request = Request(str(seed), CARD.id, inputs, parameters, seed)
        result: Result = self._engine.run(self._instance, request)
        picture: np.ndarray[Any, Any] = result.outputs["image"].value
        return picture


def _digest(picture: np.ndarray[Any, Any]) -> str:
    return ids.sha256(codecs.encode("image", picture, {"height": 4, "width": 4}).data)
