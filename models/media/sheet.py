"""A contact sheet: pictures in rows and columns, with labels, as one picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from mutoscope.models.media.layout import Content, Layout, Pixels, columns_of, fitted
from mutoscope.platform.engine.loop import BuildContext, ComponentNode, Program
from mutoscope.platform.engine.request import Output, Request
from mutoscope.platform.errors import InvalidParameter

PAPER, INK, EDGE = (255, 255, 255), (34, 34, 34), (214, 214, 214)
LABEL_SIZE, TITLE_SIZE = 14, 18
"""Points of Pillow's own font, which is the same on every machine."""


def build(context: BuildContext) -> Program:
    """The card's program."""
    return Program(
        nodes=(ComponentNode("sheet", "pixels", run),),
        outputs=lambda slots: {"image": Output("image", slots["sheet"])},
        check=check,
    )


def check(request: Request) -> None:
    """Refuse labels that do not fit the pictures. Raises InvalidParameter."""
    asked, count = request.parameters, len(request.inputs["images"])
    columns = columns_of(count, asked["columns"])
    rows = -(-count // columns)
    for name, expected in (("column_labels", columns), ("row_labels", rows)):
        if asked[name] and len(asked[name]) != expected:
            remedy = f"use {expected}, one for each, or none: {count} pictures make {rows} x {columns}"
            raise InvalidParameter(name, list(asked[name]), remedy)


def run(slots: Mapping[str, Any]) -> dict[str, Any]:
    """The sheet, uint8 (H, W, 3)."""
    asked = slots["request"].parameters
    pictures = [fitted(np.asarray(each), asked["cell"]) for each in slots["images"]]
    columns = columns_of(len(pictures), asked["columns"])
    content = Content(pictures, columns, asked["title"], asked["column_labels"], asked["row_labels"])
    return {"sheet": drawn(content)}


def drawn(content: Content) -> Pixels:
    """Pictures and labels on white paper."""
    label, heading = ImageFont.load_default(LABEL_SIZE), ImageFont.load_default(TITLE_SIZE)
    layout = Layout.of(content, label.getlength, heading.getlength)
    sheet = Image.new("RGB", (layout.width, layout.height), PAPER)
    pen = ImageDraw.Draw(sheet)
    for font, lines in ((heading, layout.title), (label, layout.labels)):
        for line in lines:
            pen.text((line.x, line.y), line.words, fill=INK, font=font)
    for picture, (x, y) in zip(content.pictures, layout.places, strict=True):
        height, width = picture.shape[:2]
        pen.rectangle((x - 1, y - 1, x + width, y + height), outline=EDGE)  # in the gap around it
        sheet.paste(Image.fromarray(picture), (x, y))
    return np.asarray(sheet, dtype=np.uint8).copy()
