"""Which frames of a clip are looked at."""

from __future__ import annotations

import numpy as np
import pytest

from mutoscope.models.reward.common.sample import chosen, count_of, frames_of
from mutoscope.platform.clip import Clip
from mutoscope.platform.engine.request import Request

FRAMES = np.arange(17, dtype=np.uint8)[:, None, None, None] * np.ones((1, 2, 2, 3), np.uint8)


def request_of(frames: int, **inputs: object) -> Request:
    return Request("one", "reward-x", inputs, {"frames": frames}, 0)


@pytest.mark.parametrize(
    ("total", "wanted", "expected"),
    [(17, 5, [0, 4, 8, 12, 16]), (17, 1, [0]), (3, 9, [0, 1, 2]), (1, 9, [0]), (4, 3, [0, 2, 3])],
)
def test_frames_are_evenly_spaced(total: int, wanted: int, expected: list[int]) -> None:
    assert chosen(total, wanted).tolist() == expected


def test_a_picture_is_one_frame() -> None:
    assert frames_of(request_of(9, image=FRAMES[3])).tolist() == FRAMES[3:4].tolist()
    assert count_of(request_of(9, image=FRAMES[3])) == 1


def test_sound_makes_no_difference_to_the_frames() -> None:
    silent = request_of(5, video=FRAMES)
    sounding = request_of(5, video=Clip(FRAMES, np.zeros((1, 800), np.float32), 8000))
    assert frames_of(silent)[:, 0, 0, 0].tolist() == [0, 4, 8, 12, 16]
    assert frames_of(sounding).tolist() == frames_of(silent).tolist()
    assert count_of(sounding) == count_of(silent) == 5
