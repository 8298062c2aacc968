"""Stages learn, stop anywhere, and continue on the identical curve; their folder opens as a pipeline."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import FluxPipeline

from mutoscope.models.starter.evaluate import contact_sheet, held_out_captions, score_images
from mutoscope.models.starter.grammar import parse
from mutoscope.models.starter.image_dit import DitStage, LatentBank, pack, sampling_recipe
from mutoscope.models.starter.image_recipe import DitRecipe, TextRecipe, VaeRecipe
from mutoscope.models.starter.image_vae import VaeStage, crop_batch
from mutoscope.models.starter.stage import Stage, cosine, run, save_checkpoint
from mutoscope.models.starter.text import TextStage, layout_answers, object_answers

VAE = VaeRecipe(channels=(8, 8, 8, 8), norm_groups=4, crop_batch=2, full_batch=2, steps=4, crop_share=0.5)
TEXT = TextRecipe(width=32, clip_layers=1, t5_layers=1, batch=4, steps=4, warmup=1)
DIT = DitRecipe(
    bank_size=64,
    double_blocks=1,
    single_blocks=1,
    heads=1,
    batch=4,
    steps=4,
    warmup=1,
    inference_steps=2,
    watch_captions=2,
)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def parts() -> tuple[VaeStage, TextStage, LatentBank]:
    vae = VaeStage(VAE)
    return vae, TextStage(TEXT), LatentBank.build(vae.vae, DIT)


def build(name: str, parts: tuple[VaeStage, TextStage, LatentBank]) -> Stage:
    if name == "vae":
        return VaeStage(VAE)
    if name == "text":
        return TextStage(TEXT)
    return DitStage(parts[0].vae, copy.deepcopy(parts[1].stack), parts[2], DIT, TEXT)


def assert_equal(left: Any, right: Any) -> None:
    if isinstance(left, torch.Tensor):
        assert torch.equal(left, right)
    elif isinstance(left, dict):
        assert left.keys() == right.keys()
        for key in left:
            assert_equal(left[key], right[key])
    elif isinstance(left, list | tuple):
        for one, other in zip(left, right, strict=True):
            assert_equal(one, other)
    else:
        assert left == right


@pytest.mark.parametrize("name", ["vae", "text", "dit"])
def test_a_stopped_stage_continues_on_the_identical_curve(
    name: str, parts: tuple[VaeStage, TextStage, LatentBank], tmp_path: Path
) -> None:
    whole = build(name, parts)
    losses = [whole.step()["loss"] for _ in range(4)]
    assert whole.done

    first = build(name, parts)
    assert [first.step()["loss"] for _ in range(2)] == losses[:2]
    save_checkpoint(first, tmp_path / "half.pt")
    second = build(name, parts)
    second.load_state_dict(torch.load(tmp_path / "half.pt", weights_only=True))
    assert second.steps_done == 2
    assert not second.done
    assert [second.step()["loss"] for _ in range(2)] == losses[2:]
    assert_equal(second.state_dict(), whole.state_dict())


def test_runner_logs_resumes_and_stops(parts: tuple[VaeStage, TextStage, LatentBank], tmp_path: Path) -> None:
    said: list[str] = []
    run(build("text", parts), tmp_path, say=said.append)
    lines = [json.loads(line) for line in (tmp_path / "image_text.jsonl").read_text().splitlines()]
    assert lines[-1]["step"] == 4
    assert "held_out_token" in lines[-1]
    again = build("text", parts)
    run(again, tmp_path, say=said.append)
    assert again.steps_done == 4
    assert any("resumed at step 4 of 4" in line for line in said)


def test_runner_turns_minutes_into_steps_once(
    parts: tuple[VaeStage, TextStage, LatentBank], tmp_path: Path
) -> None:
    stage = TextStage(replace(TEXT, steps=1))
    run(stage, tmp_path, minutes=1e-9, say=lambda line: None)
    # A budget below the pace measurement still ends: the measured steps and one more.
    assert stage.steps_done == stage.total_steps == 31


def test_binding_is_learned_in_a_few_steps() -> None:
    stage = TextStage(replace(TEXT, width=64, batch=32, steps=60, warmup=5))
    losses = [stage.step()["loss"] for _ in range(60)]
    assert np.mean(losses[-5:]) < 0.75 * np.mean(losses[:5])


def test_answers_follow_the_words() -> None:
    one, twin = parse("a red circle left of a blue square"), parse("a blue square right of a red circle")
    assert layout_answers(one) == layout_answers(twin)
    assert object_answers(one) == object_answers(twin)[::-1]


def test_crops_hold_an_object() -> None:
    crops = crop_batch(np.random.default_rng(0), 16, 32)
    assert crops.shape == (16, 32, 32, 3)
    assert all(np.ptp(crop.reshape(-1, 3), axis=0).max() > 60 for crop in crops)


def test_packing_is_the_pipelines() -> None:
    latents = torch.arange(2 * 8 * 8 * 8, dtype=torch.float32).view(2, 8, 8, 8)
    tokens = pack(latents)
    assert tokens.shape == (2, 16, 32)
    # Token 5 is row 1, column 1: channels outermost, then the 2 x 2 patch.
    torch.testing.assert_close(tokens[0, 5], latents[0, :, 2:4, 2:4].reshape(-1))


def test_bank_repeats_from_its_cache(parts: tuple[VaeStage, TextStage, LatentBank], tmp_path: Path) -> None:
    cache = tmp_path / "latents.pt"
    fresh, cached = (LatentBank.build(parts[0].vae, DIT, cache) for _ in range(2))
    assert cache.exists()
    assert fresh.scenes == cached.scenes
    assert torch.equal(fresh.latents, cached.latents)
    assert all(scene.split == "train" for scene in fresh.scenes)


def test_cosine_warms_up_and_ends_at_zero() -> None:
    assert cosine(0, 100, 10) == pytest.approx(0.1)
    assert cosine(10, 100, 10) == 1.0
    assert cosine(55, 100, 10) == pytest.approx(0.5)
    assert cosine(100, 100, 10) == pytest.approx(0.0)


@pytest.mark.filterwarnings("ignore")  # diffusers and transformers warn about each other when opening folders
def test_exported_folder_draws_what_the_stage_draws(
    parts: tuple[VaeStage, TextStage, LatentBank], tmp_path: Path
) -> None:
    stage = build("dit", parts)
    stage.step()
    stage.export(tmp_path)
    recipe = json.loads((tmp_path / "recipe.json").read_text())
    assert recipe == sampling_recipe(DIT)
    reopened = FluxPipeline.from_pretrained(tmp_path)
    reopened.set_progress_bar_config(disable=True)
    captions = held_out_captions(2, 2)
    assert all(parse(caption).split == "held_out" for caption in captions)
    drawn = score_images(reopened, recipe, captions)
    assert isinstance(stage, DitStage)
    np.testing.assert_array_equal(drawn.pictures, score_images(stage.pipeline(), recipe, captions).pictures)
    assert 0 <= drawn.figures()["mean"] <= 1
    assert contact_sheet(drawn).width > 2 * 64 * 3
