"""Pictures decoded in tiles: equal to the pipeline's, interleaved and cancelled on the way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mutoscope.models.flux.card import CARD
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.request import Progress, Request
from mutoscope.platform.errors import InvalidParameter, RunCancelled
from tests.models.flux.oracle import by_pipeline, load_pipeline
from tests.support.interleaving import content, orders_that_differ

TILE = 8
TILES = 3 * 4
"""16 x 24 pixels are 8 x 12 latents; tiles of 4 begin every 3."""


def request(name: str, *, seed: int = 7, **parameters: Any) -> Request:
    return Request(name, CARD.id, {}, {"prompt": "a red circle", "vae_tile": TILE, **parameters}, seed)


def test_equal_to_the_pipeline_with_tiling_enabled(
    instance: Callable[[str], Instance], tiny: Callable[[str], Path]
) -> None:
    pipeline = load_pipeline(tiny("plain"), aligned=True)
    pipeline.vae.tile_sample_min_size, pipeline.vae.tile_latent_min_size = TILE, TILE // 2
    pipeline.vae.enable_tiling()
    resident, seen = instance("plain"), list[Progress]()
    asked = request("r")
    _, picture = by_pipeline(pipeline, CARD.resolve(asked.parameters, resident.recipe), asked.seed)
    result = Engine().run(resident, asked, seen.append)
    np.testing.assert_array_equal(result.outputs["image"].value, picture, strict=True)
    whole = Engine().run(resident, request("w", vae_tile=0))
    assert not np.array_equal(whole.outputs["image"].value, picture)
    assert [at.stage for at in seen].count("vae_decode") == TILES
    assert [at.step for at in seen] == list(range(1, seen[0].total + 1))


def test_interleaved_equals_serial(instance: Callable[[str], Instance]) -> None:
    requests = [request("a"), request("b", seed=8), request("c", vae_tile=0)]
    assert orders_that_differ(instance("plain"), requests) == []


def test_cancelled_between_two_tiles(instance: Callable[[str], Instance]) -> None:
    """It stops there, and what is served beside it comes out the same."""
    resident, engine = instance("plain"), Engine()
    alone = content(Engine().run(resident, request("b", seed=8)))
    doomed, other = (engine.submit(resident, request(name, seed=seed)) for name, seed in (("a", 7), ("b", 8)))
    while doomed.progress.stage != "vae_decode":
        assert engine.step()
    doomed.cancel()
    while engine.step():
        pass
    with pytest.raises(RunCancelled, match=r"cancelled at step \d+ of 15"):
        doomed.result()
    assert content(other.result()) == alone


@pytest.mark.parametrize("tile", [4, 12, 100])
def test_a_tile_whose_seams_would_cut_latents_is_refused(
    tile: int, instance: Callable[[str], Instance]
) -> None:
    with pytest.raises(InvalidParameter, match=f"^vae_tile={tile} is not valid: use 0 or a multiple of 8$"):
        Engine().submit(instance("plain"), request("r", vae_tile=tile))
