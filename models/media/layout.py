"""Where a contact sheet's pictures and labels lie. Pixels throughout, x to the right and y down."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Pixels = NDArray[np.uint8]
Measure = Callable[[str], float]
"""How long a text is in its font, pixels."""

GAP = 10
LINE, TITLE_LINE = 18, 24
"""From one line of text to the next."""
MARGIN_WIDTH = 176
"""Of the row labels, beyond which they are wrapped."""
MOST_LINES = 8

_SPELLED = {"“": '"', "”": '"', "„": '"', "‘": "'", "’": "'", "–": "-", "—": "-", "×": "x"}


def columns_of(count: int, wanted: int | None) -> int:
    """Pictures in a row: no more than there are."""
    return min(count, wanted or math.ceil(math.sqrt(count)))


def fitted(picture: Pixels, side: int) -> Pixels:
    """A picture whose longer side is at most `side`.

    A small one is enlarged by a whole factor, each pixel a square, so that nothing is invented. One that is
    larger is reduced.
    """
    height, width = picture.shape[:2]
    longer = max(height, width)
    if longer <= side:
        factor = side // longer
        return picture.repeat(factor, axis=0).repeat(factor, axis=1)
    size = max(1, round(width * side / longer)), max(1, round(height * side / longer))
    return np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.LANCZOS), dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text and its upper left corner."""

    words: str
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Content:
    """What a sheet shows. Labels may be missing altogether, but not for some of the columns or rows."""

    pictures: Sequence[Pixels]
    columns: int
    title: str = ""
    column_labels: Sequence[str] = ()
    row_labels: Sequence[str] = ()

    @property
    def cell_width(self) -> int:
        """That of the widest picture."""
        return max(picture.shape[1] for picture in self.pictures)

    @property
    def rows(self) -> list[Sequence[Pixels]]:
        return [self.pictures[at : at + self.columns] for at in range(0, len(self.pictures), self.columns)]


@dataclass(frozen=True, slots=True)
class Layout:
    """A whole sheet. Every column is as wide as the widest picture, every row as high as its highest or its
    label.

    Attributes:
        places: the upper left corner (x, y) of each picture.
    """

    width: int
    height: int
    title: tuple[Line, ...]
    labels: tuple[Line, ...]
    places: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, content: Content, measure: Measure, measure_title: Measure) -> Layout:
        """Place everything, given how long a text is as a label and as the title."""
        cell = content.cell_width
        margin = GAP + (MARGIN_WIDTH + GAP if any(content.row_labels) else 0)
        lefts = [margin + column * (cell + GAP) for column in range(content.columns)]
        width = lefts[-1] + cell + GAP
        title = _lines(content.title, width - 2 * GAP, measure_title)
        top = GAP + (len(title) * TITLE_LINE + GAP if title else 0)
        heads = [_lines(text, cell, measure) for text in content.column_labels]
        labels = [line for left, head in zip(lefts, heads, strict=False) for line in _placed(head, left, top)]
        places = []
        y = top + max((len(head) for head in heads), default=0) * LINE
        for at, row in enumerate(content.rows):
            side = _lines(content.row_labels[at], MARGIN_WIDTH, measure) if content.row_labels else []
            labels += _placed(side, GAP, y)
            for left, picture in zip(lefts, row, strict=False):
                places.append((left + (cell - picture.shape[1]) // 2, y))
            y += max(len(side) * LINE, *(picture.shape[0] for picture in row)) + GAP
        return cls(width, y, tuple(_placed(title, GAP, GAP, TITLE_LINE)), tuple(labels), tuple(places))


def drawable(text: str) -> str:
    """A text in the letters that Pillow's own font has, which are ASCII's: accents go, the rest is a "?"."""
    bare = (letter for letter in unicodedata.normalize("NFKD", text.replace("ß", "ss")))
    kept = "".join(letter for letter in bare if not unicodedata.combining(letter))
    return "".join(_SPELLED.get(letter, letter if letter.isascii() else "?") for letter in kept)


def _placed(lines: Sequence[str], x: int, y: int, step: int = LINE) -> Iterator[Line]:
    for at, words in enumerate(lines):
        yield Line(words, x, y + at * step)


def _lines(text: str, width: int, measure: Measure) -> list[str]:
    """A text in lines that fit; a word that does not is broken, and the end of a long text is left out."""
    lines: list[str] = []
    for word in drawable(text).split():
        if lines and measure(f"{lines[-1]} {word}") <= width:
            lines[-1] = f"{lines[-1]} {word}"
        else:
            lines += _pieces(word, width, measure)
    if len(lines) > MOST_LINES:
        lines = lines[:MOST_LINES]
        while lines[-1] and measure(f"{lines[-1]}...") > width:
            lines[-1] = lines[-1][:-1]
        lines[-1] += "..."
    return lines


def _pieces(word: str, width: int, measure: Measure) -> list[str]:
    pieces = [""]
    for letter in word:
        if pieces[-1] and measure(pieces[-1] + letter) > width:
            pieces.append("")
        pieces[-1] += letter
    return pieces
