"""Videos decoded in tiles, frame by frame: equal to the pipeline's, and interleaved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mutoscope.models.wan.card import CARD
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.request import Progress, Request
from tests.models.wan.folders import EXPAND, PLAIN, Layout
from tests.models.wan.oracle import expect, load_pipeline
from tests.support.interleaving import content, serve_together

TILES = {PLAIN: (32, 64, 3 * 3), EXPAND: (64, 96, 2 * 2)}
"""Tile and video side, pixels, and the tiles that makes: of 4 latents, 3 apart, over 8 and over 6."""


def request(name: str, image: NDArray[np.uint8], layout: Layout, seed: int = 7, **extra: Any) -> Request:
    tile, side, _ = TILES[layout]
    asked = {"prompt": "a red circle", "height": side, "width": side, "num_frames": 9, "vae_tile": tile}
    return Request(name, CARD.id, {"image": image}, {**asked, **extra}, seed)


@pytest.mark.parametrize("layout", TILES, ids=lambda layout: layout.name)
def test_equal_to_the_pipeline_with_tiling_enabled(
    layout: Layout,
    folder_of: Callable[[Layout], Path],
    instance_of: Callable[[Layout], Instance],
    image: NDArray[np.uint8],
) -> None:
    pipeline, instance, seen = load_pipeline(folder_of(layout)), instance_of(layout), list[Progress]()
    tile, _, count = TILES[layout]
    asked = request("r", image, layout)
    result = Engine().run(instance, asked, seen.append)
    # The image is encoded whole: only decodes are tiled here.
    whole_encode = pipeline.vae._encode
    pipeline.vae._encode = lambda pixels: _untiled(pipeline.vae, whole_encode, pixels)
    pipeline.vae.enable_tiling(tile, tile, tile * 3 // 4, tile * 3 // 4)
    expected = expect(pipeline, image, CARD.resolve(asked.parameters, instance.recipe), asked.seed)
    np.testing.assert_array_equal(result.outputs["video"].value, expected.frames, strict=True)
    # 9 frames are 3 latent frames, each a step of every tile.
    assert [at.stage for at in seen].count("decode") == count * 3
    assert [at.step for at in seen] == list(range(1, seen[0].total + 1))


def _untiled(vae: Any, encode: Callable[[Any], Any], pixels: Any) -> Any:
    vae.disable_tiling()
    try:
        return encode(pixels)
    finally:
        vae.use_tiling = True


def test_interleaved_equals_serial(
    instance_of: Callable[[Layout], Instance], image: NDArray[np.uint8]
) -> None:
    requests = [
        request("a", image, PLAIN),
        request("b", image, PLAIN, seed=8, width=96),
        request("c", image, PLAIN, vae_tile=0),
    ]
    instance = instance_of(PLAIN)
    alone = {each.id: content(Engine().run(instance, each)) for each in requests}
    assert serve_together(instance, requests, stagger=2) == alone
