"""One frame of a clip as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mutoscope.models.media.pixels import frames_of
from mutoscope.platform.engine.loop import BuildContext, ComponentNode, Program
from mutoscope.platform.engine.request import Output, Request
from mutoscope.platform.errors import InvalidParameter


def build(context: BuildContext) -> Program:
    """The card's program."""
    return Program(
        nodes=(ComponentNode("frame", "pixels", run),),
        outputs=lambda slots: {"image": Output("image", slots["picture"])},
        check=check,
    )


def check(request: Request) -> None:
    """Refuse a frame that is not there. Raises InvalidParameter."""
    at, total = request.parameters["at"], len(frames_of(request.inputs["video"]))
    if not -total <= at < total:
        raise InvalidParameter("at", at, f"use {-total} to {total - 1}: the video has {total} frames")


def run(slots: Mapping[str, Any]) -> dict[str, Any]:
    """The frame, uint8 (H, W, 3)."""
    frames_THWC = frames_of(slots["video"])
    return {"picture": np.ascontiguousarray(frames_THWC[slots["request"].parameters["at"]])}
