"""Pixel operations: what comes out, pixel by pixel, and what is refused."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from PIL import ImageFont

from mutoscope.models.media.layout import MARGIN_WIDTH, Content, Layout, columns_of, drawable, fitted
from mutoscope.models.media.sheet import LABEL_SIZE, TITLE_SIZE
from mutoscope.models.registry import get_card
from mutoscope.platform.clip import Clip
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance, load_instance
from mutoscope.platform.engine.request import Output, Request
from mutoscope.platform.errors import InvalidParameter


@cache
def instance(card_id: str) -> Instance:
    return load_instance(get_card(card_id), {}, recipe={})


def served(card_id: str, inputs: dict[str, Any], **parameters: Any) -> Output:
    request = Request("r", card_id, inputs, parameters, seed=0)
    (output,) = Engine().run(instance(card_id), request).outputs.values()
    return output


def clip(frames: int, start: int = 0, *, height: int = 4, width: int = 6) -> np.ndarray:
    """Frame k is filled with start + k."""
    values = np.arange(start, start + frames, dtype=np.uint8)
    return np.broadcast_to(values[:, None, None, None], (frames, height, width, 3)).copy()


def picture(value: int, height: int = 4, width: int = 6) -> np.ndarray:
    return np.full((height, width, 3), value, np.uint8)


@pytest.mark.parametrize(("at", "value"), [(-1, 4), (0, 0), (2, 2), (-5, 0)])
def test_a_frame(at: int, value: int) -> None:
    assert (served("video-frame", {"video": clip(5)}, at=at).value == picture(value)).all()


def test_a_frame_of_a_clip_with_sound() -> None:
    sounding = Clip(clip(5), np.zeros((1, 800), np.float32), 8000)
    frame = (
        instance("video-frame")
        .program.nodes[0]
        .run({"video": sounding, "request": Request("r", "video-frame", {}, {"at": 3}, seed=0)})
    )
    assert (frame["picture"] == picture(3)).all()


@pytest.mark.parametrize("at", [5, -6])
def test_a_frame_that_is_not_there(at: int) -> None:
    with pytest.raises(InvalidParameter, match=rf"^at={at} is not valid: use -5 to 4: the video has 5"):
        served("video-frame", {"video": clip(5)}, at=at)


def test_clips_are_joined_and_what_they_share_is_shown_once() -> None:
    parts = [clip(3), clip(3, 2), clip(2, 4)]
    joined = served("video-join", {"videos": parts}, fps=8, shared_frames=1)
    assert joined.value[:, 0, 0, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert joined.meta == {"fps": 8}
    assert len(served("video-join", {"videos": parts}, fps=12.5).value) == 8
    assert (served("video-join", {"videos": parts[:1]}, fps=8, shared_frames=9).value == parts[0]).all()


@pytest.mark.parametrize(
    ("parts", "parameters", "line"),
    [
        (
            [clip(2), clip(2, width=8)],
            {"fps": 8},
            "videos='6x4 and 8x4' is not valid: join videos",
        ),
        ([clip(2), clip(2)], {"fps": 8, "shared_frames": 2}, "shared_frames=2 is not valid: use less than 2"),
        ([clip(2)], {}, "fps=None is not valid: fps is required"),
        ([], {"fps": 8}, "videos=[] is not valid: use a list of one video or more"),
        ([picture(1)], {"fps": 8}, "videos.0='uint8 (4, 6, 3)' is not valid: use a uint8 array (frames"),
    ],
)
def test_clips_that_cannot_be_joined(parts: list[Any], parameters: dict[str, Any], line: str) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        served("video-join", {"videos": parts}, **parameters)
    assert str(refusal.value).startswith(line)


def test_every_picture_is_on_the_sheet_where_the_layout_says_and_enlarged_by_whole_pixels() -> None:
    pictures = [picture(10 * n, 8, 12) for n in range(1, 6)]
    labels = {"column_labels": ("seed 1", "seed 2"), "row_labels": ("a", "b", "c"), "title": "colours"}
    sheet = served("contact-sheet", {"images": pictures}, columns=2, cell=30, **labels).value
    shown = [fitted(each, 30) for each in pictures]
    measures = (ImageFont.load_default(size).getlength for size in (LABEL_SIZE, TITLE_SIZE))
    layout = Layout.of(Content(shown, 2, "colours", ("seed 1", "seed 2"), ("a", "b", "c")), *measures)
    assert sheet.shape == (layout.height, layout.width, 3)
    for each, (x, y) in zip(shown, layout.places, strict=True):
        assert each.shape == (16, 24, 3)
        assert (sheet[y : y + 16, x : x + 24] == each).all()
    # Each label has left ink where the layout put it, and the sheet without them has none there.
    for line in (*layout.labels, *layout.title):
        assert sheet[line.y : line.y + 18, line.x : line.x + 30].min() < 100, line
    plain = served("contact-sheet", {"images": pictures}, columns=2, cell=30).value
    assert plain.shape[0] < sheet.shape[0]
    assert plain.shape[1] == sheet.shape[1] - MARGIN_WIDTH - 10


def test_a_sheet_of_mixed_sizes_keeps_rows_and_columns_apart() -> None:
    shown = [picture(1, 30, 10), picture(2, 10, 30), picture(3, 20, 20)]
    layout = Layout.of(Content(shown, 2), len, len)
    boxes = [(x, y, x + p.shape[1], y + p.shape[0]) for p, (x, y) in zip(shown, layout.places, strict=True)]
    for at, (left, top, right, bottom) in enumerate(boxes):
        assert 0 < left < right < layout.width
        assert 0 < top < bottom < layout.height
        for other in boxes[at + 1 :]:
            assert right < other[0] or other[2] < left or bottom < other[1] or other[3] < top


@pytest.mark.parametrize(
    ("size", "side", "fit"), [((8, 12), 30, (16, 24)), ((100, 50), 40, (40, 20)), ((40, 40), 40, (40, 40))]
)
def test_fitting(size: tuple[int, int], side: int, fit: tuple[int, int]) -> None:
    assert fitted(picture(7, *size), side).shape[:2] == fit


@pytest.mark.parametrize(
    ("count", "wanted", "columns"), [(1, None, 1), (5, None, 3), (9, None, 3), (2, 8, 2)]
)
def test_columns(count: int, wanted: int | None, columns: int) -> None:
    assert columns_of(count, wanted) == columns


def test_long_labels_are_wrapped_broken_and_cut() -> None:
    text = " ".join(["a" * 300, *["word"] * 200])
    layout = Layout.of(Content([picture(1)], 1, row_labels=(text,)), lambda words: 8.0 * len(words), len)
    lines = [line.words for line in layout.labels]
    assert len(lines) == 8
    assert lines[-1].endswith("...")
    assert all(8 * len(words) <= MARGIN_WIDTH for words in lines)


def test_labels_are_drawn_in_the_letters_of_the_font() -> None:
    assert drawable("„größer“ – Ärger… 日本 5×5") == '"grosser" - Arger... ?? 5x5'


def test_labels_that_do_not_fit_the_pictures() -> None:
    with pytest.raises(InvalidParameter, match=r"^row_labels=\['a'\] is not valid: use 2, one for each"):
        served("contact-sheet", {"images": [picture(1)] * 3}, columns=2, row_labels=("a",))
