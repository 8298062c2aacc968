"""What decides a video, and what does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mutoscope.models.wan.card import CARD
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.request import Progress, Request, Result
from tests.models.wan.folders import EXPAND, PLAIN, SECOND_UNIPC, VISION_UNIPC, Layout


def request(name: str, image: NDArray[np.uint8], seed: int = 1, **parameters: Any) -> Request:
    return Request(name, CARD.id, {"image": image}, {"prompt": "a red circle", **parameters}, seed)


def digestible(result: Result) -> tuple[bytes, bytes]:
    return result.outputs["latent"].value["latents"].tobytes(), result.outputs["video"].value.tobytes()


@pytest.mark.parametrize(
    "layout", [PLAIN, VISION_UNIPC, SECOND_UNIPC, EXPAND], ids=lambda layout: layout.name
)
def test_interleaved_equals_serial(
    layout: Layout, instance_of: Callable[[Layout], Instance], image: NDArray[np.uint8]
) -> None:
    """Three requests, two of them equal; the third differs in everything that shapes a step."""
    instance = instance_of(layout)
    requests = [
        request("first", image),
        request("other", image[::-1], seed=2, guidance_scale=1.0, num_frames=9, num_inference_steps=5),
        request("twin", image),
    ]
    serial = [digestible(Engine().run(instance, each)) for each in requests]
    stages: list[str] = []
    engine = Engine()
    tickets = [
        engine.submit(instance, each, on_progress=lambda progress: stages.append(progress.request_id))
        for each in requests
    ]
    while engine.step():
        pass
    assert stages[:4] == ["first", "other", "twin", "first"], "the steps were not interleaved"
    assert [digestible(ticket.result()) for ticket in tickets] == serial
    assert serial[0] == serial[2] != serial[1]


def test_prompt_image_and_seed_decide_the_video(
    instance_of: Callable[[Layout], Instance], image: NDArray[np.uint8]
) -> None:
    instance = instance_of(VISION_UNIPC)
    base = request("base", image)
    variants = {
        "base": base,
        "seed": request("seed", image, seed=2),
        "image": request("image", 255 - image),
        "prompt": request("prompt", image, prompt="a blue square"),
        "negative": request("negative", image, negative_prompt="a green"),
        "guidance": request("guidance", image, guidance_scale=2.0),
    }
    latents, frames = {}, {}
    for name, each in variants.items():
        latents[name], frames[name] = digestible(Engine().run(instance, each))
    assert len(set(latents.values())) == len(variants)
    assert frames["base"] != frames["seed"]
    assert frames["base"] != frames["image"]


def test_frame_rate_is_told_not_made(
    instance_of: Callable[[Layout], Instance], image: NDArray[np.uint8]
) -> None:
    instance = instance_of(PLAIN)
    slow, fast = (Engine().run(instance, request("r", image, fps=fps)) for fps in (4, 30))
    assert digestible(slow) == digestible(fast)
    assert [each.outputs["video"].meta["fps"] for each in (slow, fast)] == [4, 30]


def test_the_clean_first_frame_is_the_image(
    instance_of: Callable[[Layout], Instance], image: NDArray[np.uint8]
) -> None:
    """The TI2V layout holds the image's latent: neither seed nor prompt reaches the first latent frame."""
    instance = instance_of(EXPAND)
    results = [
        Engine().run(instance, request("r", image, seed=1)),
        Engine().run(instance, request("r", image, seed=2, prompt="a blue square")),
    ]
    first, second = (result.outputs["latent"].value["latents"] for result in results)
    np.testing.assert_array_equal(first[:, :, 0], second[:, :, 0])
    assert not np.array_equal(first[:, :, 1], second[:, :, 1])


def test_progress_counts_every_plan(
    instance_of: Callable[[Layout], Instance], image: NDArray[np.uint8]
) -> None:
    seen: list[Progress] = []
    result = Engine().run(instance_of(VISION_UNIPC), request("r", image, num_inference_steps=2), seen.append)
    stages = ["text_encode", "vision_encode", "image_encode", "denoise", "denoise", "decode"]
    assert [progress.stage for progress in seen] == stages
    assert [(progress.step, progress.total) for progress in seen] == [(n, 6) for n in range(1, 7)]
    assert set(result.timings) == set(stages)
