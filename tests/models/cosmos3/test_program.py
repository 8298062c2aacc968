"""What decides an output, and what does not: company, order, tiles; both loops on one module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from mutoscope.models.common.solver import UniPCSolver
from mutoscope.models.cosmos3.card import CARD
from mutoscope.models.cosmos3.components import CosmosComponents
from mutoscope.models.cosmos3.denoise import Denoise
from mutoscope.models.cosmos3.reason import Reason
from mutoscope.models.cosmos3.towers import Past, Understanding
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance, load_instance
from mutoscope.platform.engine.loop import LoopNode, WorkPlan
from mutoscope.platform.engine.request import Progress, Request
from mutoscope.platform.errors import InvalidParameter
from tests.models.cosmos3.oracle import expect, load_pipeline
from tests.support.interleaving import content, orders_that_differ

IMAGE = np.random.default_rng(0).integers(0, 256, (40, 52, 3), dtype=np.uint8)


def request(name: str, seed: int = 1, image: NDArray[np.uint8] | None = None, **parameters: Any) -> Request:
    inputs = {} if image is None else {"image": image}
    return Request(name, CARD.id, inputs, {"prompt": "a red circle", **parameters}, seed)


REQUESTS = [
    request("first"),
    request("begun", image=IMAGE),
    request("other", seed=2, num_frames=1, reasoning_tokens=7, temperature=1.0, guidance_scale=1.0),
]
"""A video, one with a first frame, and a picture that differs in everything that shapes a step."""


@pytest.mark.parametrize("name", ["qwen3", "nemotron"])
def test_interleaved_equals_serial_in_every_order(name: str, instance_of: Callable[[str], Instance]) -> None:
    assert orders_that_differ(instance_of(name), REQUESTS) == []


def test_words_and_latents_take_turns_on_the_one_module(instance_of: Callable[[str], Instance]) -> None:
    """While one request is denoised, another is still decoding its prompt: both by the same transformer."""
    instance, turns = instance_of("qwen3"), list[str]()
    seen: list[Progress] = []
    engine = Engine(clock=lambda: 0.0)  # nothing is measured: steps cost what they declare
    drawing = request("drawing", reasoning_tokens=0, num_inference_steps=6)
    writing = request("writing", reasoning_tokens=8, temperature=1.0)
    tickets = [engine.submit(instance, each, seen.append) for each in (drawing, writing)]
    while engine.step():
        turns = [f"{at.request_id} {at.stage}" for at in seen]
    both = [turn for turn in turns if turn in ("drawing denoise", "writing reason")]
    switches = sum(one != other for one, other in pairwise(both))
    assert switches > 4, both
    loops = [node.loop for node in instance.program.nodes if isinstance(node, LoopNode)]
    reason, denoise = loops[0], loops[1]
    assert isinstance(reason, Reason)
    assert isinstance(denoise, Denoise)
    assert reason.tokens.model.module is denoise.tower.module is instance.components["transformer"]
    alone = [content(Engine().run(instance, each)) for each in (drawing, writing)]
    assert [content(ticket.result()) for ticket in tickets] == alone


class Remembering:
    """The planted fault: the tower keeps the past on itself and ignores the one it is given."""

    def __init__(self, tower: Understanding) -> None:
        self.tower, self.past = tower, None

    def extend(self, tokens_S: Tensor, cache: Past | None) -> tuple[Tensor, Past]:
        logits_V, self.past = self.tower.extend(tokens_S, None if cache is None else self.past)
        return logits_V, self.past

    def rows(self, tokens_S: Tensor, cache: Past | None) -> None:
        return None


def test_control_a_cache_that_requests_share_is_caught(
    folder_of: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = load_instance(CARD, folder_of("qwen3"))
    tokens = instance.program.nodes[0].loop.tokens
    monkeypatch.setattr(tokens, "model", Remembering(tokens.model))
    pair = [request("a", reasoning_tokens=16), request("b", prompt="9 8 7 6", reasoning_tokens=16)]
    assert orders_that_differ(instance, pair) != []


def test_progress_and_outputs(instance_of: Callable[[str], Instance]) -> None:
    seen: list[Progress] = []
    asked = request("r", reasoning_tokens=3, num_inference_steps=2, temperature=1.0)
    result = Engine().run(instance_of("qwen3"), asked, seen.append)
    steps = [*["reason"] * 3, "read", "image_encode", "denoise", "denoise", "decode"]
    assert [at.stage for at in seen] == steps
    assert [(at.step, at.total) for at in seen] == [(n, 8) for n in range(1, 9)]
    video, latent = result.outputs["video"], result.outputs["latent"].value["latents"]
    assert (video.value.dtype, video.value.shape, video.meta) == (np.uint8, (5, 32, 32, 3), {"fps": 8})
    assert (latent.dtype, latent.shape) == (np.float32, (1, 16, 2, 4, 4))
    assert set(result.outputs) == {"video", "latent", "text"}


def test_one_frame_is_a_picture(instance_of: Callable[[str], Instance]) -> None:
    result = Engine().run(instance_of("qwen3"), request("r", num_frames=1))
    image = result.outputs["image"]
    assert (image.kind, image.value.dtype, image.value.shape) == ("image", np.uint8, (32, 32, 3))
    assert set(result.outputs) == {"image", "latent", "text"}


def test_prompt_seed_guidance_and_rate_decide_the_sample(instance_of: Callable[[str], Instance]) -> None:
    instance = instance_of("qwen3")
    base = {"reasoning_tokens": 0}
    variants = {
        "base": request("r", **base),
        "seed": request("r", seed=2, **base),
        "prompt": request("r", prompt="a blue square", **base),
        "negative": request("r", negative_prompt="green", **base),
        "guidance": request("r", guidance_scale=2.0, **base),
        "rate": request("r", fps=24, **base),
        "rewritten": request("r", reasoning_tokens=4),
    }
    made = {name: content(Engine().run(instance, each)) for name, each in variants.items()}
    assert len({each["latent.latents"] for each in made.values()}) == len(variants)


def test_a_text_is_read_once_for_all_that_draw_it(instance_of: Callable[[str], Instance]) -> None:
    """A read is named by its tokens, which a text and the sizes make, and by nothing else."""
    instance = instance_of("qwen3")
    read = instance.program.nodes[1]

    def name(text: str, **parameters: Any) -> Any:
        given = CARD.resolve({"prompt": "unused", **parameters}, instance.recipe)
        return read.content({"request": Request("r", CARD.id, {}, given, 0), "text": text})

    drawn = name("a circle")
    assert drawn == name("a circle", num_inference_steps=9, reasoning_tokens=0)
    others = [name("a square"), name("a circle", width=64), name("a circle", guidance_scale=1.0)]
    assert len({drawn, *others}) == 4
    assert read.uses == ("transformer",)


def test_the_first_frame_is_the_image(instance_of: Callable[[str], Instance]) -> None:
    """Neither seed nor prompt reaches the first latent frame; both reach the second."""
    results = [
        Engine().run(instance_of("qwen3"), request("r", image=IMAGE)),
        Engine().run(instance_of("qwen3"), request("r", seed=2, image=IMAGE, prompt="a blue square")),
    ]
    first, second = (result.outputs["latent"].value["latents"] for result in results)
    np.testing.assert_allclose(first[:, :, 0], second[:, :, 0], rtol=0, atol=1e-5)
    assert np.abs(first[:, :, 1] - second[:, :, 1]).max() > 0.1


def test_an_image_is_encoded_once_for_all_that_begin_with_it(instance_of: Callable[[str], Instance]) -> None:
    encode = instance_of("qwen3").program.nodes[2]

    def name(**given: Any) -> Any:
        asked = request("r", **given)
        resolved = replace(asked, parameters=CARD.resolve(asked.parameters, instance_of("qwen3").recipe))
        return encode.content({"request": resolved, **asked.inputs})

    assert name() is None
    assert name(image=IMAGE) == name(image=IMAGE.copy(), seed=9, prompt="a blue square", num_frames=9)
    assert len({name(image=IMAGE), name(image=IMAGE[::-1]), name(image=IMAGE, width=64)}) == 3
    assert encode.uses == ("vae",)


def test_an_image_for_a_picture_is_refused(instance_of: Callable[[str], Instance]) -> None:
    with pytest.raises(
        InvalidParameter, match=r"^num_frames=1 is not valid: use 5 or more, or leave the image"
    ):
        Engine().submit(instance_of("qwen3"), request("r", image=IMAGE, num_frames=1))


def test_a_video_in_tiles_equals_the_pipelines(
    folder_of: Callable[[str], Path], instance_of: Callable[[str], Instance]
) -> None:
    pipeline, instance, seen = load_pipeline(folder_of("qwen3")), instance_of("qwen3"), list[Progress]()
    # Only sizes come of the pipeline's encode, of blank frames; it is not tiled here.
    pipeline.vae.enable_tiling(32, 32, 24, 24)
    asked = {"reasoning_tokens": 0, "height": 48, "width": 40, "vae_tile": 32}
    given = request("r", **asked)
    resolved = CARD.resolve(given.parameters, instance.recipe)
    wanted = expect(pipeline, resolved["prompt"], resolved, given.seed)
    result = Engine().run(instance, given, seen.append)
    np.testing.assert_array_equal(result.outputs["video"].value, wanted.frames, strict=True)
    # 6 x 5 latents in tiles of 4, 3 apart: 2 x 2, each of 2 latent frames.
    assert [at.stage for at in seen].count("decode") == 2 * 2 * 2


def test_rows_of_equal_texts_share_a_call(instance_of: Callable[[str], Instance]) -> None:
    """Unguided samples of one prompt do; a guided step's two texts of unlike lengths cannot."""
    instance = instance_of("qwen3")
    loop = next(node.loop for node in instance.program.nodes if node.name == "denoise")
    _, read, image, *_ = instance.program.nodes

    def plan(seed: int, **parameters: Any) -> WorkPlan:
        given = CARD.resolve({"prompt": "unused", **parameters}, instance.recipe)
        slots: dict[str, Any] = {"request": Request("r", CARD.id, {}, given, seed), "text": "a circle"}
        with torch.inference_mode():
            made = loop.next(loop.init(slots | read.run(slots) | image.run(slots)))
        assert isinstance(made, WorkPlan)
        return made

    first, second = (plan(seed, guidance_scale=1.0) for seed in (1, 2))
    assert first.rows is not None
    assert second.rows is not None
    assert (first.shape, first.rows.call) == (second.shape, second.rows.call)
    with torch.inference_mode():
        alone = [each.run() for each in (first, second)]
        stacked = _stacked([row for each in (first, second) for row in each.rows.make()])
        together = first.rows.call(stacked)
    torch.testing.assert_close(together, torch.cat(alone), rtol=0, atol=1e-5)
    assert plan(1, negative_prompt="blurry", guidance_scale=3.0).rows is None
    # "a circle." has as many tokens as the three times "not" that deny the format.
    assert plan(1, negative_prompt="", guidance_scale=3.0).rows is not None


def _stacked(rows: list[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.cat([row[name] for row in rows]) for name in rows[0]}


def test_each_request_has_a_solver_of_its_own(instance_of: Callable[[str], Instance]) -> None:
    """UniPC remembers velocities."""
    instance = instance_of("native")
    parts = CosmosComponents.of(instance.components)
    assert not hasattr(parts.scheduler, "step")
    loop = next(node.loop for node in instance.program.nodes if node.name == "denoise")
    given = Request("r", CARD.id, {}, CARD.resolve({"prompt": "x"}, instance.recipe), 1)
    slots: dict[str, Any] = {"request": given, "text": "a circle"}
    for node in instance.program.nodes[1:3]:
        slots |= node.run(slots)
    solvers = [loop.init(slots).solver for _ in range(2)]
    assert all(isinstance(solver, UniPCSolver) for solver in solvers)
    assert solvers[0].scheduler is not solvers[1].scheduler


def test_half_precision_keeps_the_sample_in_full(
    folder_of: Callable[[str], Path], instance_of: Callable[[str], Instance]
) -> None:
    """Transformer in bfloat16, VAE and solver in float32: near the full-precision sample."""
    half = load_instance(CARD, folder_of("qwen3"), dtype="bfloat16")
    assert half.components["vae"].dtype == torch.float32
    asked = request("r", reasoning_tokens=0)
    full, rounded = (
        Engine().run(each, asked).outputs["latent"].value["latents"] for each in (instance_of("qwen3"), half)
    )
    assert rounded.dtype == np.float32
    assert 0 < np.abs(full - rounded).max() < 0.1


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"num_frames": 7}, r"num_frames=7 is not valid: use 5 or 9 \(a multiple of 4, plus 1\)"),
        ({"height": 30}, "height=30 is not valid: use a multiple of 8"),
        ({"vae_tile": 40}, "vae_tile=40 is not valid: use 0 or a multiple of 32"),
        ({"reasoning_tokens": -1}, "reasoning_tokens=-1 is not valid: use 0 or more"),
        ({"temperature": -0.5}, "temperature=-0.5 is not valid: use 0.0 or more"),
        ({"top_p": 0.0}, "top_p=0.0 is not valid: use a number greater than 0.0"),
        ({"sound": True}, "sound=True is not valid: cosmos3-omni takes prompt"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_bad_parameters_are_refused_by_name(
    parameters: dict[str, Any], message: str, instance_of: Callable[[str], Instance]
) -> None:
    with pytest.raises(InvalidParameter, match=f"^{message}"):
        Engine().submit(instance_of("qwen3"), request("r", **parameters))
