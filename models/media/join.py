"""Clips one after another.

A clip that continues another begins with the frame that the other ended on. Such frames are shown once.
"""

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
    return Program(nodes=(ComponentNode("join", "pixels", run),), outputs=outputs, check=check)


def check(request: Request) -> None:
    """Refuse clips of several sizes, and those that end before they show anything of their own.

    Raises:
        InvalidParameter: names the clips.
    """
    clips = [frames_of(video) for video in request.inputs["videos"]]
    sizes = list(dict.fromkeys(f"{clip.shape[2]}x{clip.shape[1]}" for clip in clips))
    if len(sizes) > 1:
        raise InvalidParameter("videos", " and ".join(sizes), "join videos of one size")
    shared = request.parameters["shared_frames"]
    shortest = min((len(clip) for clip in clips[1:]), default=None)
    if shortest is not None and shared >= shortest:
        raise InvalidParameter(
            "shared_frames", shared, f"use less than {shortest}: a further video has no more frames than that"
        )


def run(slots: Mapping[str, Any]) -> dict[str, Any]:
    """All frames, uint8 (T, H, W, 3)."""
    first, *further = [frames_of(video) for video in slots["videos"]]
    shared = slots["request"].parameters["shared_frames"]
    return {"frames_THWC": np.concatenate([first, *(clip[shared:] for clip in further)])}


def outputs(slots: Mapping[str, Any]) -> dict[str, Output]:
    """The card's one output slot."""
    fps = slots["request"].parameters["fps"]
    return {"video": Output("video", slots["frames_THWC"], {"fps": int(fps) if fps == int(fps) else fps})}
