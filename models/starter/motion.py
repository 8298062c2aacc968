"""Scenes that move: 17 frames in which every object of a scene moves alike.

Drifting shifts all objects by ``DRIFT`` pixels of the 64-pixel canvas between the first and the last frame,
at constant speed; growing and shrinking scale each object about its own centre to ``GROWN`` or ``SHRUNK`` of
its first radius, linearly.  Frame 0 is the still picture of the same placements, byte for byte.  Objects
stay at least about three quarters visible: an outer object of a pair may lose up to six pixels over the edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from mutoscope.models.starter.grammar import Scene
from mutoscope.models.starter.render import Pixels, Placement, place, render_many

FRAMES: Final = 17
DRIFT: Final = 10.0
GROWN: Final = 1.3
SHRUNK: Final = 0.65

_DIRECTION: Final = {
    "drifting right": (1.0, 0.0),
    "drifting left": (-1.0, 0.0),
    "drifting up": (0.0, -1.0),
    "drifting down": (0.0, 1.0),
}
_FINAL_SCALE: Final = {"growing": GROWN, "shrinking": SHRUNK}


def moved(spots: Sequence[Placement], motion: str | None, progress: float) -> tuple[Placement, ...]:
    """Placements when the fraction ``progress`` (0 at the first frame, 1 at the last) of ``motion`` is
    done.
    """
    dx, dy = _DIRECTION.get(motion or "", (0.0, 0.0))
    scale = 1.0 + progress * (_FINAL_SCALE.get(motion or "", 1.0) - 1.0)
    return tuple(
        replace(p, x=p.x + DRIFT * progress * dx, y=p.y + DRIFT * progress * dy, radius=p.radius * scale)
        for p in spots
    )


def animate(
    scene: Scene, placements: Sequence[Placement], frames: int = FRAMES, height: int = 64, width: int = 64
) -> Pixels:
    """The frames of ``scene`` under ``scene.motion`` (no motion said: still): uint8 (frames, height, width,
    3).
    """
    steps = [moved(placements, scene.motion, index / max(frames - 1, 1)) for index in range(frames)]
    return render_many([scene] * frames, steps, height, width)


def sample_clip(scene: Scene, rng: np.random.Generator, frames: int = FRAMES) -> Pixels:
    """Frames of ``scene`` with freshly drawn placements: uint8 (frames, 64, 64, 3)."""
    return animate(scene, place(scene, rng), frames)
