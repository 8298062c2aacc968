"""The renderer and the animator draw what placements say."""

from __future__ import annotations

import numpy as np
import pytest

from mutoscope.models.starter.grammar import MOTIONS, parse, sample_scene
from mutoscope.models.starter.motion import DRIFT, FRAMES, animate, moved, sample_clip
from mutoscope.models.starter.render import (
    BACKGROUND_RGB,
    OBJECT_RGB,
    Placement,
    place,
    render,
    render_many,
)


def test_a_batch_is_its_pictures_one_by_one() -> None:
    rng = np.random.default_rng(0)
    scenes = [sample_scene(rng) for _ in range(12)]
    spots = [place(scene, rng) for scene in scenes]
    batch = render_many(scenes, spots)
    assert batch.shape == (12, 64, 64, 3)
    assert batch.dtype == np.uint8
    for picture, scene, placed in zip(batch, scenes, spots, strict=True):
        np.testing.assert_array_equal(picture, render(scene, placed))


def test_circle_covers_its_area_in_its_colour() -> None:
    picture = render(parse("a red circle on a black background"), [Placement(32, 32, 12)])
    ink, ground = np.array(OBJECT_RGB["red"], float), np.array(BACKGROUND_RGB["black"], float)
    cover = ((picture - ground) @ (ink - ground)) / ((ink - ground) @ (ink - ground))
    # Anti-aliased coverage sums to the area pi r^2 within half a percent.
    assert cover.sum() == pytest.approx(np.pi * 12**2, rel=5e-3)
    assert tuple(picture[32, 32]) == OBJECT_RGB["red"]
    assert tuple(picture[0, 0]) == BACKGROUND_RGB["black"]


def test_larger_canvas_shows_the_same_picture() -> None:
    scene, spots = parse("a blue square left of a green ring"), (Placement(18, 30, 10), Placement(46, 34, 11))
    small, large = render(scene, spots), render(scene, spots, 128, 128)
    pooled = large.reshape(64, 2, 64, 2, 3).mean((1, 3))
    assert np.abs(pooled - small).mean() < 1.5


@pytest.mark.parametrize("relation", ["left of", "right of", "above", "below"])
def test_relations_are_unambiguous(relation: str) -> None:
    rng = np.random.default_rng(1)
    scene = parse(f"a red circle {relation} a blue square")
    for _ in range(200):
        first, second = place(scene, rng)
        dx, dy = second.x - first.x, second.y - first.y
        along, across = (dx, dy) if relation in ("left of", "right of") else (dy, dx)
        assert abs(along) >= 26
        assert abs(across) <= 8
        assert (along > 0) == (relation in ("left of", "above"))


def test_spread_narrows_placements_about_the_same_mean() -> None:
    scene = parse("a red circle")
    wide, narrow = (
        np.array([place(scene, np.random.default_rng(n), spread)[0].x for n in range(300)])
        for spread in (1.0, 0.5)
    )
    np.testing.assert_allclose(narrow - 32, (wide - 32) / 2, atol=1e-9)


@pytest.mark.parametrize("motion", MOTIONS)
def test_clips_begin_with_the_still_and_move_only_when_told(motion: str) -> None:
    scene = parse(f"a red circle left of a blue square, {motion}")
    spots = place(scene, np.random.default_rng(2))
    clip = animate(scene, spots)
    assert clip.shape == (FRAMES, 64, 64, 3)
    np.testing.assert_array_equal(clip[0], render(scene, spots))
    assert (clip[-1] == clip[0]).all() == (motion == "standing still")


def test_drift_is_constant_speed() -> None:
    (half,), (end,) = (moved([Placement(32, 32, 12)], "drifting up", p) for p in (0.5, 1.0))
    assert (half.y, end.y, end.x, end.radius) == (32 - DRIFT / 2, 32 - DRIFT, 32, 12)


def test_seeds_decide_clips() -> None:
    scene = parse("a green cross, growing")
    one, same, other = (sample_clip(scene, np.random.default_rng(seed)) for seed in (5, 5, 6))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()
