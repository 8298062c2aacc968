"""What is said of pictures without knowing what they show, by hand-worked numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from mutoscope.platform.errors import InvalidParameter
from tests.models.media.test_media import clip, picture, served


def told(*pictures: np.ndarray[Any, Any], groups: tuple[int, ...] = ()) -> dict[str, Any]:
    value: dict[str, Any] = served("picture-statistics", {"images": list(pictures)}, groups=groups).value
    return value


def test_diversity_is_between_pictures_of_one_prompt() -> None:
    black, white, grey = picture(0), picture(255), picture(51)
    # Within the groups: black to white is 1, grey to itself 0; between the groups nothing is compared.
    assert told(black, white, grey, grey, groups=(2, 2))["diversity"] == pytest.approx((1 + 0) / 2)
    # All in one: 1 and twice 51/255 to black and 204/255 to white, and 0 between the greys.
    assert told(black, white, grey, grey)["diversity"] == pytest.approx((1 + 2 * 0.2 + 2 * 0.8 + 0) / 6)
    assert told(black, white, groups=(1, 1))["diversity"] is None


def test_edges_are_where_brightness_changes() -> None:
    halves = picture(0, 4, 6)
    halves[:, 3:] = 255
    # One of six columns has a neighbour to its right that differs.
    assert told(halves)["edge_density"] == pytest.approx(1 / 6)
    assert told(picture(200))["edge_density"] == 0.0


def test_colour_entropy_counts_colours() -> None:
    assert told(picture(90))["colour_entropy"] == 0.0
    four = picture(0, 2, 2)
    four[0, 0], four[0, 1], four[1, 0] = (255, 0, 0), (0, 255, 0), (0, 0, 255)
    assert told(four)["colour_entropy"] == pytest.approx(2.0)
    three_of_four = picture(0, 2, 2)
    three_of_four[0, 0] = 255
    expected = -(0.75 * math.log2(0.75) + 0.25 * math.log2(0.25))
    assert told(three_of_four)["colour_entropy"] == pytest.approx(expected)


def test_the_dark_share() -> None:
    half = picture(0)
    half[:2] = 255
    assert told(half, picture(255))["dark_fraction"] == pytest.approx((0.5 + 0) / 2)


def test_clips_are_compared_frame_by_frame() -> None:
    value = served("picture-statistics", {"videos": [clip(3), clip(3, 51)]}).value
    assert value["diversity"] == pytest.approx(0.2)
    assert value["samples"] == 2


@pytest.mark.parametrize(
    ("inputs", "groups", "line"),
    [
        ({"images": [picture(1)]}, (2,), "groups=[2] is not valid: let them add up to the 1 given"),
        ({"images": [picture(1), picture(1, 8, 8)]}, (), "images=[(1, 4, 6, 3), (1, 8, 8, 3)] is not valid"),
        ({"images": [picture(1)], "videos": [clip(2)]}, (), "images='1 and 1 videos' is not valid: give one"),
        ({}, (), "images='0 and 0 videos' is not valid: give one of the two"),
    ],
)
def test_what_cannot_be_compared(inputs: dict[str, Any], groups: tuple[int, ...], line: str) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        served("picture-statistics", inputs, groups=groups)
    assert str(refusal.value).startswith(line)
