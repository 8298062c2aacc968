"""What decides a video, and what does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from mutoscope.models.common.solver import UniPCSolver, make_solver
from mutoscope.models.wan import denoise
from mutoscope.models.wan.card import CARD
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance, load_instance
from mutoscope.platform.engine.request import Progress, Request
from tests.models.wan.folders import EXPAND, PLAIN, SECOND_UNIPC, VISION_UNIPC, Layout
from tests.support.interleaving import content, serve_together

Served = dict[str, dict[str, bytes]]


def request(name: str, image: NDArray[np.uint8], seed: int = 1, **parameters: Any) -> Request:
    return Request(name, CARD.id, {"image": image}, {"prompt": "a red circle", **parameters}, seed)


def three(image: NDArray[np.uint8]) -> list[Request]:
    """Two equal requests and one that differs in everything that shapes a step."""
    other = {"guidance_scale": 1.0, "num_frames": 9, "num_inference_steps": 5}
    return [
        request("first", image),
        request("other", image[::-1].copy(), seed=2, **other),
        request("twin", image),
    ]


def alone_and_together(instance: Instance, requests: list[Request]) -> tuple[Served, list[Served]]:
    """What requests return one by one, and interleaved, arriving at once and two steps apart."""
    alone = {each.id: content(Engine().run(instance, each)) for each in requests}
    return alone, [serve_together(instance, requests, stagger) for stagger in (0, 2)]


@pytest.mark.parametrize(
    "layout", [PLAIN, VISION_UNIPC, SECOND_UNIPC, EXPAND], ids=lambda layout: layout.name
)
def test_interleaved_equals_serial(
    layout: Layout, instance_of: Callable[[Layout], Instance], image: NDArray[np.uint8]
) -> None:
    """Three requests, two of them equal, the third different in everything that shapes a step."""
    other = {"guidance_scale": 1.0, "num_frames": 9, "num_inference_steps": 5}
    requests = [
        request("first", image),
        request("other", image[::-1].copy(), seed=2, **other),
        request("twin", image),
    ]
    alone, together = alone_and_together(instance_of(layout), requests)
    assert together == [alone, alone]
    assert alone["first"] == alone["twin"]
    assert alone["first"]["video"] != alone["other"]["video"]


def test_control_a_memory_that_requests_share_is_caught(
    instance_of: Callable[[Layout], Instance], image: NDArray[np.uint8], monkeypatch: pytest.MonkeyPatch
) -> None:
    """UniPC remembers velocities; kept on the instance, those of two requests would mix."""
    memory: list[Any] = [None, None]

    def remembering(schedule: Mapping[str, Any], steps: int, device: torch.device) -> UniPCSolver:
        solver = make_solver(schedule, steps, device)
        assert isinstance(solver, UniPCSolver)
        assert len(solver.scheduler.model_outputs) == len(memory)
        solver.scheduler.model_outputs = memory
        return solver

    monkeypatch.setattr(denoise, "make_solver", remembering)
    requests = [request("first", image), request("other", image, seed=2)]
    alone, together = alone_and_together(instance_of(VISION_UNIPC), requests)
    assert alone == {each.id: content(Engine().run(instance_of(VISION_UNIPC), each)) for each in requests}
    assert together[0] != alone


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
    made = {name: content(Engine().run(instance, each)) for name, each in variants.items()}
    assert len({each["latent.latents"] for each in made.values()}) == len(variants)
    assert made["base"]["video"] != made["seed"]["video"]
    assert made["base"]["video"] != made["image"]["video"]


def test_frame_rate_is_told_not_made(
    instance_of: Callable[[Layout], Instance], image: NDArray[np.uint8]
) -> None:
    instance = instance_of(PLAIN)
    slow, fast = (Engine().run(instance, request("r", image, fps=fps)) for fps in (4, 30))
    assert content(slow) == content(fast)
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


def test_half_precision_keeps_the_image_and_the_sample_in_full(
    folder_of: Callable[[Layout], Path], instance_of: Callable[[Layout], Instance], image: NDArray[np.uint8]
) -> None:
    """Transformer and text in bfloat16, VAE and solver in float32: near the full-precision sample."""
    half = load_instance(CARD, folder_of(VISION_UNIPC), dtype="bfloat16")
    results = [Engine().run(each, request("r", image)) for each in (instance_of(VISION_UNIPC), half)]
    full, rounded = (result.outputs["latent"].value["latents"] for result in results)
    assert rounded.dtype == np.float32
    assert 0 < np.abs(full - rounded).max() < 0.1
    assert not np.array_equal(rounded, torch.from_numpy(rounded).bfloat16().float().numpy())


def test_cut_prompts_are_said(instance_of: Callable[[Layout], Instance], image: NDArray[np.uint8]) -> None:
    """The negative prompt only where it is read."""
    long = {
        "prompt": "a red circle drifting left",
        "negative_prompt": "a green square",
        "max_sequence_length": 3,
    }
    guided, unguided = (
        Engine().run(instance_of(PLAIN), request("r", image, guidance_scale=scale, **long))
        for scale in (3.0, 1.0)
    )
    prompt = "prompt has 6 tokens; the text encoder reads 3: the last 3 were cut: 'circle drifting left'"
    negative = "negative_prompt has 4 tokens; the text encoder reads 3: the last 1 was cut: 'square'"
    assert guided.warnings == (prompt, negative)
    assert unguided.warnings == (prompt,)
    assert Engine().run(instance_of(PLAIN), request("r", image)).warnings == ()


def test_extent_is_the_number_of_latent_tokens(instance_of: Callable[[Layout], Instance]) -> None:
    """9 frames are 3 latent frames; 32 x 64 pixels are 4 x 8 latents and 2 x 4 patches."""
    sized = CARD.resolve({"prompt": "a", "num_frames": 9, "width": 64}, instance_of(PLAIN).recipe)
    assert instance_of(PLAIN).program.extent(Request("r", CARD.id, {}, sized, 0)) == 3 * 2 * 4
