"""The judge is right on the truth, near chance on the wrong caption, and not fooled by damage."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mutoscope.models.starter import checker
from mutoscope.models.starter.checker import check_image, check_video
from mutoscope.models.starter.grammar import MOTIONS, SHAPES, Scene, parse, sample_scene
from mutoscope.models.starter.motion import sample_clip
from mutoscope.models.starter.render import Placement, place, render, render_many


@pytest.fixture(scope="module")
def truth() -> tuple[list[Scene], np.ndarray]:
    rng = np.random.default_rng(11)
    scenes = [sample_scene(rng, "held_out") for _ in range(240)]
    return scenes, render_many(scenes, [place(scene, rng) for scene in scenes])


def test_ground_truth_scores_at_least_098(truth: tuple[list[Scene], np.ndarray]) -> None:
    reports = [check_image(picture, scene) for scene, picture in zip(*truth, strict=True)]
    assert np.mean([r.mean for r in reports]) >= 0.98
    assert np.mean([r.strict for r in reports]) >= 0.98


def test_shuffled_captions_score_near_chance(truth: tuple[list[Scene], np.ndarray]) -> None:
    scenes, pictures = truth
    pairs = [n for n, scene in enumerate(scenes) if scene.relation is not None]
    shifted = pairs[7:] + pairs[:7]
    reports = [check_image(pictures[n], scenes[m]) for n, m in zip(pairs, shifted, strict=True)]
    # A said colour is among the two shown with probability 1/3; shape, given the colour, 1/5 of those.
    assert np.mean([np.mean(r.colour) for r in reports]) == pytest.approx(1 / 3, abs=0.08)
    assert np.mean([np.mean(r.shape) for r in reports]) < 0.14
    assert np.mean([r.strict for r in reports]) < 0.02


def test_noise_and_emptiness_score_nothing() -> None:
    scene = parse("a red circle left of a blue square")
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3)).astype(np.uint8)
    empty = np.full((64, 64, 3), 250, np.uint8)
    for picture in (noise, empty):
        report = check_image(picture, scene)
        assert sum(report.shape) == 0
        assert report.relation == 0
        assert not report.strict
    assert check_image(empty, scene).background == 1


@pytest.mark.parametrize(
    "wrong",
    [
        "a red circle right of a blue square",
        "a red circle above a blue square",
        "a blue circle left of a red square",
        "a red square left of a blue circle",
        "a red circle left of a blue square on a gray background",
        "a red circle",
    ],
)
def test_each_kind_of_mistake_is_caught(wrong: str) -> None:
    said = parse("a red circle left of a blue square")
    shown = parse(wrong)
    report = check_image(render(shown, place(shown, np.random.default_rng(4))), said)
    assert not report.strict
    assert report.mean < 1


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("radius", [7.0, 10.0, 14.0])
def test_shapes_are_named_at_every_size(shape: str, radius: float) -> None:
    scene = parse(f"a purple {shape} on a gray background")
    for shift in (0.0, 0.3, 0.6):
        assert check_image(render(scene, [Placement(32 + shift, 31 - shift, radius)]), scene).strict


@pytest.mark.parametrize("motion", MOTIONS)
def test_motion_of_true_clips(motion: str) -> None:
    rng = np.random.default_rng(21)
    right = []
    for _ in range(2):
        scene = replace(sample_scene(rng, "held_out"), motion=motion)
        clip = sample_clip(scene, rng)
        report = check_video(clip, scene, clip[0])
        right.append(report.motion_right)
        assert report.first_frame_psnr == float("inf")
        assert report.last.colour == (1.0,) * len(scene.objects)
        other = MOTIONS[MOTIONS.index(motion) - 1]
        assert not check_video(clip, replace(scene, motion=other), clip[0]).motion_right
    assert all(right)


def test_first_frame_psnr_is_what_it_says() -> None:
    scene = parse("a red circle")
    clip = sample_clip(scene, np.random.default_rng(0))
    off = np.clip(clip[0].astype(int) - 5, 0, 255).astype(np.uint8)
    # A constant error of 5 of 255: 20 log10(255 / 5) = 34.15 dB.
    assert check_video(clip, scene, off).first_frame_psnr == pytest.approx(34.15, abs=0.2)


def test_the_judge_shares_no_code_with_the_renderer() -> None:
    tree = ast.parse(Path(checker.__file__).read_text())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    ours = {name for name in imported if name and name.startswith("mutoscope")}
    assert ours == {"mutoscope.models.starter.grammar"}
