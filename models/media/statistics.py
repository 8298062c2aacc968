"""What can be said of pictures without knowing what they show: how a policy that decays is noticed.

    diversity       between pictures of one prompt: root of the mean squared difference of two, which is 1
                    for black and white; mean over all pairs, null where no prompt has two pictures
    edge_density    share of pixels at which the brightness changes by more than `EDGE` of the full range
    colour_entropy  of the histogram over 4 x 4 x 4 colours, bits, 0 to 6
    dark_fraction   share of pixels darker than `DARK` of the full range

The last three are means over the pictures. A clip is its frames; two clips are compared frame by frame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mutoscope.models.media.pixels import frames_of
from mutoscope.platform.engine.loop import BuildContext, ComponentNode, Program
from mutoscope.platform.engine.request import Output, Request
from mutoscope.platform.errors import InvalidParameter

Frames = NDArray[np.uint8]

EDGE = 0.08
DARK = 0.125

_LUMA = np.array([0.299, 0.587, 0.114])
"""Of red, green and blue in brightness (ITU-R BT.601)."""


def build(context: BuildContext) -> Program:
    """The card's program."""
    return Program(
        nodes=(ComponentNode("statistics", "pixels", run),),
        outputs=lambda slots: {"statistics": Output("json", slots["told"])},
        check=check,
    )


def check(request: Request) -> None:
    """Refuse groups that are not those of the pictures, and pictures of several sizes in one.

    Raises:
        InvalidParameter: names the pictures or the groups.
    """
    clips = _clips(request.inputs)
    groups = request.parameters["groups"]
    if groups and sum(groups) != len(clips):
        raise InvalidParameter("groups", list(groups), f"let them add up to the {len(clips)} given")
    for group in _grouped(clips, groups):
        shapes = sorted({clip.shape for clip in group})
        if len(shapes) > 1:
            raise InvalidParameter("images", shapes, "compare pictures of one size")


def run(slots: Mapping[str, Any]) -> dict[str, Any]:
    """The statistics, plain JSON."""
    clips = _clips(slots)
    return {"told": statistics(_grouped(clips, slots["request"].parameters["groups"]))}


def statistics(groups: Sequence[Sequence[Frames]]) -> dict[str, Any]:
    """The statistics of groups of clips, each uint8 (T, H, W, 3)."""
    clips = [clip for group in groups for clip in group]
    distances = [_distance(a, b) for group in groups for a, b in combinations(group, 2)]
    return {
        "samples": len(clips),
        "diversity": _mean(distances) if distances else None,
        "edge_density": _mean([_edges(clip) for clip in clips]),
        "colour_entropy": _mean([_entropy(clip) for clip in clips]),
        "dark_fraction": _mean([float((_brightness(clip) < DARK).mean()) for clip in clips]),
    }


def _clips(given: Mapping[str, Any]) -> list[Frames]:
    images, videos = given.get("images") or [], given.get("videos") or []
    if bool(images) == bool(videos):
        raise InvalidParameter("images", f"{len(images)} and {len(videos)} videos", "give one of the two")
    return [np.asarray(image)[None] for image in images] + [frames_of(video) for video in videos]


def _grouped(clips: Sequence[Frames], sizes: Sequence[int]) -> list[Sequence[Frames]]:
    groups, at = [], 0
    for size in sizes or (len(clips),):
        groups.append(clips[at : at + size])
        at += size
    return groups


def _distance(a: Frames, b: Frames) -> float:
    difference = (a.astype(np.float64) - b.astype(np.float64)) / 255
    return float(np.sqrt(np.mean(difference**2)))


def _brightness(clip: Frames) -> NDArray[np.float64]:
    light: NDArray[np.float64] = clip.astype(np.float64) @ _LUMA / 255
    return light


def _edges(clip: Frames) -> float:
    light_THW = _brightness(clip)
    down = np.diff(light_THW, axis=1, append=light_THW[:, -1:])
    right = np.diff(light_THW, axis=2, append=light_THW[:, :, -1:])
    return float((np.hypot(down, right) > EDGE).mean())


def _entropy(clip: Frames) -> float:
    bins = (clip >> 6).astype(np.int64) @ np.array([16, 4, 1])
    shares = np.bincount(bins.ravel(), minlength=64) / bins.size
    held = shares[shares > 0]
    return float(-(held * np.log2(held)).sum())


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))
