"""How requests go through the program: interleaved, in shared calls, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from mutoscope.models.ltx2.card import CARD
from mutoscope.models.ltx2.generate import Generate
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.loop import LoopNode, Rows, WorkPlan
from mutoscope.platform.engine.request import Progress, Request
from mutoscope.platform.errors import InvalidParameter
from tests.support.interleaving import content, serve_together

PROMPT = "a red circle hums"


def request(name: str, seed: int = 1, **parameters: Any) -> Request:
    return Request(name, CARD.id, {}, {"prompt": PROMPT, **parameters}, seed)


def test_interleaved_equals_serial(instance_of: Callable[[str], Instance]) -> None:
    """Requests that go every way through the program, two of them equal."""
    requests = [
        request("both stages"),
        request("silent", seed=2, audio=False, num_frames=17),
        request("one stage", two_stages=False, modality_scale=2.0, stg_scale=1.0),
        request("twin"),
    ]
    instance = instance_of("2.0")
    alone = {each.id: content(Engine().run(instance, each)) for each in requests}
    assert [serve_together(instance, requests, stagger) for stagger in (0, 2)] == [alone, alone]
    assert alone["both stages"] == alone["twin"]
    assert alone["both stages"]["video"] != alone["silent"]["video"]


@pytest.mark.parametrize(
    ("asked", "stages"),
    [
        # 3 steps, the upsampler, 3 steps; then both VAEs and the vocoder
        ({}, ["text_encode"] + 7 * ["generate"] + 3 * ["decode"]),
        ({"audio": False}, ["text_encode"] + 7 * ["generate"] + ["decode"]),
        (
            {"two_stages": False, "num_inference_steps": 2},
            ["text_encode"] + 2 * ["generate"] + 3 * ["decode"],
        ),
        # 6 x 6 latents, in tiles of 4 that lie 3 apart
        (
            {"two_stages": False, "height": 192, "width": 192, "vae_tile": 128},
            ["text_encode"] + 3 * ["generate"] + 6 * ["decode"],
        ),
        # three passes in each of 2 steps
        (
            {"two_stages": False, "num_inference_steps": 2, "stg_scale": 1.0, "modality_scale": 2.0},
            ["text_encode"] + 6 * ["generate"] + 3 * ["decode"],
        ),
    ],
)
def test_every_pass_is_a_step(
    asked: dict[str, Any], stages: list[str], instance_of: Callable[[str], Instance]
) -> None:
    seen: list[Progress] = []
    Engine().run(instance_of("2.0"), request("r", **asked), on_progress=seen.append)
    assert [progress.stage for progress in seen] == stages
    assert seen[-1].total == len(stages)


def test_requests_share_calls(instance_of: Callable[[str], Instance]) -> None:
    """Rows of requests at different steps and frame rates, in one call: as alone, up to rounding. Requests
    with and without guidance, or with and without sound, have other shapes and never meet."""
    instance = instance_of("2.0")
    pairs = [_plan(instance, request("r", seed, two_stages=False), steps=seed) for seed in range(3)]
    pairs += [_plan(instance, request("r", 5, two_stages=False, fps=12.0, num_frames=9), steps=1)]
    plans = [plan for plan, _ in pairs]
    same = [plan for plan in plans if plan.shape == plans[0].shape]
    assert len(same) == 3
    assert len({plan.rows.call for plan in plans if plan.rows}) == 1
    rows = [row for plan in same for row in _rows(plan).make()]
    assert all(tensor.shape[0] == 1 for row in rows for tensor in row.values())
    together = _rows(same[0]).call({name: torch.cat([row[name] for row in rows]) for name in rows[0]})
    for at, plan in enumerate(same):
        for modality, alone in enumerate(plan.run()):
            torch.testing.assert_close(together[modality][at : at + 1], alone, rtol=0, atol=1e-5)
    others = ({"audio": False}, {"guidance_scale": 1.0, "audio_guidance_scale": 1.0})
    for other in others:
        assert _plan(instance, request("o", two_stages=False, **other), steps=0)[0].shape != same[0].shape


def _rows(plan: WorkPlan) -> Rows:
    assert plan.rows is not None
    return plan.rows


def _plan(instance: Instance, asked: Request, steps: int) -> tuple[WorkPlan, Any]:
    """The plan of a request's denoising after so many steps, and its state."""
    text, generate = instance.program.nodes[:2]
    assert isinstance(generate, LoopNode)
    assert isinstance(generate.loop, Generate)
    resolved = Request("r", CARD.id, {}, CARD.resolve(asked.parameters, instance.recipe), asked.seed)
    slots = {"request": resolved}
    with torch.inference_mode():
        slots |= text.run(slots)  # type: ignore[union-attr]
        state = generate.loop.init(slots)
        for _ in range(steps):
            plan = generate.loop.next(state)
            assert isinstance(plan, WorkPlan)
            generate.loop.advance(state, plan.run())
        plan = generate.loop.next(state)
    assert isinstance(plan, WorkPlan)
    return plan, state


def test_a_prompt_that_is_cut_is_told(instance_of: Callable[[str], Instance]) -> None:
    words = " ".join(["a red circle"] * 6)
    result = Engine().run(instance_of("2.0"), request("r", prompt=words, two_stages=False))
    assert result.warnings == (
        "prompt has 19 tokens; the text encoder reads 16: the last 3 were cut: 'a red circle'",
    )
    cut = request("r", prompt=" ".join(words.split()[:15]), two_stages=False)
    whole = Engine().run(instance_of("2.0"), cut)
    assert whole.warnings == ()
    assert content(whole) == content(result)


def test_a_clip_too_short_for_sound_is_refused_at_once(instance_of: Callable[[str], Instance]) -> None:
    short = {"num_frames": 1, "fps": 200.0, "two_stages": False}
    line = "num_frames=1 .*use more, or audio=false: 0.005 s hold no sound"
    with pytest.raises(InvalidParameter, match=line):
        Engine().run(instance_of("2.0"), request("r", **short))
    silent = Engine().run(instance_of("2.0"), request("r", **short, audio=False))
    assert silent.outputs["video"].value.shape == (1, 128, 128, 3)


def test_extent_counts_tokens_of_both_modalities(instance_of: Callable[[str], Instance]) -> None:
    program, recipe = instance_of("2.0").program, instance_of("2.0").recipe

    def extent(**asked: Any) -> float:
        return program.extent(Request("r", CARD.id, {}, CARD.resolve({"prompt": PROMPT, **asked}, recipe), 0))

    # 2 x 4 x 4 latents, and 9 frames of 1/24 s at 25 moments a second
    assert extent(audio=False) == 32
    assert extent() == 32 + 9
    assert extent(height=256) == 64 + 9
