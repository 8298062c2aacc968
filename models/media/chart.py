"""Numbers as lines in labelled panels. Drawn by hand: one kind of plot does not deserve a plotting library.

The input is JSON: ``{"title": text, "panels": [{"title": text, "lines": {name: [[x, y], ...]}, "marks":
[[x, text], ...]}]}``. A y of null is a gap. A mark is a vertical line with a word beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from mutoscope.models.media.axes import Axis, told
from mutoscope.models.media.layout import TITLE_LINE, Pixels, drawable
from mutoscope.platform.engine.loop import BuildContext, ComponentNode, Program
from mutoscope.platform.engine.request import Output, Request
from mutoscope.platform.errors import InvalidParameter

PAPER, INK, GRID, MARK = (255, 255, 255), (34, 34, 34), (226, 226, 226), (150, 110, 110)
COLOURS = (
    *((27, 108, 168), (209, 73, 91), (46, 139, 87), (214, 150, 30)),
    *((106, 76, 147), (0, 121, 140), (141, 106, 79), (90, 90, 90)),
)
"""Of the lines, in their order; after the last comes the first."""

LETTERS, HEADING = 11, 16
"""Points of Pillow's own font, which is the same on every machine."""
LEFT, RIGHT, TOP, BOTTOM = 56, 14, 40, 24
"""Pixels of a panel around its axes: labels, title and the first row of the legend."""
LEGEND_ROW = 14
"""Pixels of each further row of the legend."""

Point = tuple[float, float | None]


def build(context: BuildContext) -> Program:
    """The card's program."""
    return Program(
        nodes=(ComponentNode("charts", "pixels", run),),
        outputs=lambda slots: {"image": Output("image", slots["picture"])},
        check=_check,
    )


def _check(request: Request) -> None:
    """Refuse what is no series. Raises InvalidParameter."""
    given = request.inputs["series"]
    try:
        panels = [_lines(panel) for panel in given["panels"]]
    except (KeyError, TypeError, ValueError):
        panels = []
    if not panels:
        raise InvalidParameter("series", given, "use JSON with a title and panels of lines")


def run(slots: Mapping[str, Any]) -> dict[str, Any]:
    """The panels, uint8 (H, W, 3)."""
    asked = slots["request"].parameters
    return {"picture": drawn(slots["series"], asked["columns"], asked["panel_width"], asked["panel_height"])}


def drawn(series: Mapping[str, Any], columns: int, width: int, height: int) -> Pixels:
    """All panels below the title, on white paper."""
    panels = series["panels"]
    columns = min(columns, len(panels))
    head = TITLE_LINE + 8 if series.get("title") else 0
    size = columns * width, head + math.ceil(len(panels) / columns) * height
    picture = Image.new("RGB", size, PAPER)
    pen = ImageDraw.Draw(picture)
    font = ImageFont.load_default(LETTERS)
    if head:
        pen.text((12, 8), drawable(series["title"]), fill=INK, font=ImageFont.load_default(HEADING))
    for at, panel in enumerate(panels):
        corner = at % columns * width, head + at // columns * height
        _draw_panel(pen, font, panel, corner, (width, height))
    return np.asarray(picture, dtype=np.uint8).copy()


def _draw_panel(
    pen: ImageDraw.ImageDraw,
    font: Any,
    panel: Mapping[str, Any],
    corner: tuple[int, int],
    size: tuple[int, int],
) -> None:
    lines = _lines(panel)
    left, right = corner[0] + LEFT, corner[0] + size[0] - RIGHT
    legend = _legend(font, list(lines) if len(lines) > 1 else [], right - left)
    top = corner[1] + TOP + LEGEND_ROW * max(0, len(legend) - 1)
    bottom = corner[1] + size[1] - BOTTOM
    points = [point for line in lines.values() for point in line]
    across = Axis.over([x for x, _ in points], left, right)
    up = Axis.over([y for _, y in points if y is not None], bottom, top)
    pen.text((left, corner[1] + 6), drawable(panel.get("title", "")), fill=INK, font=font)
    for tick in up.ticks(4):
        pen.line((left, up.place(tick), right, up.place(tick)), fill=GRID)
        pen.text((left - 5, up.place(tick)), told(tick), fill=INK, font=font, anchor="rm")
    for tick in across.ticks(6):
        pen.line((across.place(tick), bottom, across.place(tick), bottom + 3), fill=INK)
        pen.text((across.place(tick), bottom + 5), told(tick), fill=INK, font=font, anchor="mt")
    pen.line((left, bottom, right, bottom), fill=INK)
    for x, words in panel.get("marks", ()):
        pen.line((across.place(x), top, across.place(x), bottom), fill=MARK)
        pen.text((across.place(x) + 3, top), drawable(str(words)), fill=MARK, font=font)
    _draw_lines(pen, lines, across, up)
    _draw_legend(pen, font, legend, left, corner[1] + 22)


def _draw_lines(
    pen: ImageDraw.ImageDraw, lines: Mapping[str, Sequence[Point]], across: Axis, up: Axis
) -> None:
    for at, line in enumerate(lines.values()):
        colour = COLOURS[at % len(COLOURS)]
        for there, stretch in groupby(line, key=lambda point: point[1] is not None):
            if not there:
                continue
            places = [(across.place(x), up.place(y)) for x, y in stretch if y is not None]
            if len(places) > 1:
                pen.line(places, fill=colour, width=2)
            for x, y in places if len(places) <= 40 else ():
                pen.ellipse((x - 2, y - 2, x + 2, y + 2), fill=colour)


def _legend(font: Any, names: Sequence[str], width: float) -> list[list[tuple[int, str, float]]]:
    """The legend's rows: of each entry which line it names, its words, and where it begins, pixels."""
    rows: list[list[tuple[int, str, float]]] = []
    x = width
    for at, name in enumerate(names):
        words = drawable(name)
        length = 26 + font.getlength(words)
        if x + length > width:
            rows.append([])
            x = 0
        rows[-1].append((at % len(COLOURS), words, x))
        x += length
    return rows


def _draw_legend(
    pen: ImageDraw.ImageDraw,
    font: Any,
    rows: Sequence[Sequence[tuple[int, str, float]]],
    left: float,
    y: float,
) -> None:
    for row in rows:
        for colour, words, x in row:
            pen.line((left + x, y + 6, left + x + 12, y + 6), fill=COLOURS[colour], width=3)
            pen.text((left + x + 16, y), words, fill=INK, font=font)
        y += LEGEND_ROW


def _lines(panel: Mapping[str, Any]) -> dict[str, list[Point]]:
    """A panel's lines with all numbers as floats; one that is not finite is a gap."""
    return {
        str(name): [(float(x), None if y is None or not math.isfinite(y) else float(y)) for x, y in line]
        for name, line in panel["lines"].items()
    }
