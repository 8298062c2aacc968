"""Numbers as lines: where they are drawn, and what is no series."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mutoscope.models.media.axes import Axis, told
from mutoscope.models.media.chart import BOTTOM, COLOURS, LEFT, PAPER, RIGHT, TOP
from mutoscope.platform.errors import InvalidParameter
from tests.models.media.test_media import served

WIDTH, HEIGHT = 300, 160


def chart(*panels: dict[str, Any], title: str = "", columns: int = 2) -> np.ndarray[Any, Any]:
    series = {"title": title, "panels": list(panels)}
    parameters = {"columns": columns, "panel_width": WIDTH, "panel_height": HEIGHT}
    value: np.ndarray[Any, Any] = served("line-charts", {"series": series}, **parameters).value
    return value


def drawn(picture: np.ndarray[Any, Any], colour: tuple[int, int, int]) -> list[tuple[int, int]]:
    """Where a colour is, as (x, y) from left to right."""
    ys, xs = np.nonzero((picture == colour).all(axis=-1))
    return sorted(zip(xs.tolist(), ys.tolist(), strict=True))


def test_a_line_leads_from_its_first_to_its_last_point() -> None:
    picture = chart({"title": "reward", "lines": {"reward": [[0, 0.0], [10, 1.0]]}})
    assert picture.shape == (HEIGHT, WIDTH, 3)
    places = drawn(picture, COLOURS[0])
    across, up = Axis.over([0, 10], LEFT, WIDTH - RIGHT), Axis.over([0, 1], HEIGHT - BOTTOM, TOP)
    assert places[0][0] == pytest.approx(across.place(0), abs=3)
    assert places[-1][0] == pytest.approx(across.place(10), abs=3)
    assert places[0][1] > places[-1][1], "larger is higher"
    assert places[-1][1] == pytest.approx(up.place(1), abs=4)


def test_a_gap_is_no_line() -> None:
    whole = chart({"lines": {"a": [[x, 0.5] for x in range(180)]}})
    gap = chart({"lines": {"a": [[x, None if 60 <= x < 120 else 0.5] for x in range(180)]}})
    assert len(drawn(gap, COLOURS[0])) < 0.8 * len(drawn(whole, COLOURS[0]))
    middle = LEFT + (WIDTH - LEFT - RIGHT) // 2
    assert all(abs(x - middle) > 20 for x, _ in drawn(gap, COLOURS[0]))


def test_every_panel_and_line_is_there() -> None:
    panel = {"title": "kl", "lines": {"one": [[0, 1], [1, 2]], "two": [[0, 2], [1, 1]]}, "marks": [[1, "x"]]}
    picture = chart(panel, panel, panel, title="a training")
    head = picture.shape[0] - 2 * HEIGHT
    assert head > 0
    assert picture.shape[1] == 2 * WIDTH
    for left, top in ((0, head), (WIDTH, head), (0, head + HEIGHT)):
        part = picture[top : top + HEIGHT, left : left + WIDTH]
        assert all(drawn(part, colour) for colour in COLOURS[:2])
    assert (picture[head + HEIGHT :, WIDTH:] == PAPER).all()


@pytest.mark.parametrize("points", [[], [[0, None]], [[3, 7.0]]])
def test_few_points_are_drawn_all_the_same(points: list[Any]) -> None:
    assert chart({"title": "t", "lines": {"a": points}}).shape == (HEIGHT, WIDTH, 3)


@pytest.mark.parametrize(
    "series", [{}, {"panels": []}, [1], {"panels": [{}]}, {"panels": [{"lines": {"a": [1]}}]}]
)
def test_what_is_no_series_is_refused(series: Any) -> None:
    with pytest.raises(InvalidParameter, match="use JSON with a title and panels of lines"):
        served("line-charts", {"series": series})


def test_ticks_are_round_numbers_within_the_range() -> None:
    axis = Axis(0.0, 1.0, 0, 100)
    assert [told(tick) for tick in axis.ticks(4)] == ["0", "0.5", "1"]
    assert [told(tick) for tick in Axis(-3e-5, 4e-5, 0, 100).ticks(4)] == ["-2e-05", "0", "2e-05", "4e-05"]


def test_a_long_legend_stays_within_its_panel() -> None:
    lines = {f"a training of number {n}": [[0, n], [1, n]] for n in range(6)}
    alone = chart({"lines": lines})
    pair = chart({"lines": lines}, {"lines": {"one": [[0, 1], [1, 2]]}})
    assert (pair[:, :WIDTH] == alone).all(), "nothing of the second panel is covered by the first"
    beside = chart({"lines": {"one": [[0, 1], [1, 2]]}})
    assert (pair[:, WIDTH:] == beside).all()
    few = chart({"lines": dict(list(lines.items())[:2])})
    assert drawn(few, COLOURS[0]), "a short one has a row"
