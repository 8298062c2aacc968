"""What a reward card looks at: a picture, or frames of a clip. NumPy only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mutoscope.platform import ids
from mutoscope.platform.engine.request import Request
from mutoscope.platform.errors import InvalidParameter

Frames = NDArray[np.uint8]

SUBJECT_DOMAIN = "mutoscope.reward-subject/1"


def check_sample(request: Request) -> None:
    """Refuse a request without a sample, or with two. Raises InvalidParameter."""
    given = [name for name in ("image", "video") if name in request.inputs]
    if not given:
        raise InvalidParameter("image", None, f"{request.card} needs an image or a video to score")
    if len(given) > 1:
        raise InvalidParameter("video", "given", "give an image or a video, not both")


def is_clip(request: Request) -> bool:
    """Whether the sample moves."""
    return "video" in request.inputs


def frames_of(request: Request) -> Frames:
    """The frames to look at, uint8 (N, H, W, 3): a picture is one frame."""
    if not is_clip(request):
        return np.asarray(request.inputs["image"])[None]
    video = pixels_of(request.inputs["video"])
    return video[chosen(len(video), request.parameters["frames"])]


def count_of(request: Request) -> int:
    """How many frames `frames_of` gives."""
    if not is_clip(request):
        return 1
    return len(chosen(len(pixels_of(request.inputs["video"])), request.parameters["frames"]))


def pixels_of(video: object) -> Frames:
    """A clip's frames, uint8 (T, H, W, 3), whether or not it carries sound."""
    return np.asarray(getattr(video, "frames_THWC", video))


def chosen(total: int, wanted: int) -> NDArray[np.intp]:
    """Indices of `wanted` of `total` frames, evenly spaced, first and last among them; all where there are no
    more."""
    return np.linspace(0, total - 1, min(wanted, total)).round().astype(np.intp)


def subject_of(request: Request) -> str:
    """Digest of what is scored, the pixels, and against what, the parameters: equal scores of two samples
    are two rewards."""
    name = "video" if is_clip(request) else "image"
    pixels = np.ascontiguousarray(pixels_of(request.inputs[name]))
    return ids.digest(
        SUBJECT_DOMAIN,
        {
            "kind": name,
            "shape": list(pixels.shape),
            "pixels": ids.sha256(pixels.tobytes()),
            "parameters": {k: v for k, v in request.parameters.items() if k != "time_limit"},
        },
    )
