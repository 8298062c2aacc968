"""From what was read in a picture to graded criteria. NumPy only.

Every criterion is in [0, 1] and changes smoothly with the picture: a shape half way to the wanted one earns
about a half, and an object that drifts half as far as it should earns part of the motion. Distances are in
pixels of a 64 x 64 canvas.

Shape suffixes: T frames; C, S, G, N as in `net`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mutoscope.models.starter.grammar import Scene

Floats = NDArray[np.float64]

APART = 10.0
"""Pixels between two centroids, along the named axis, at which a relation holds by half."""
APART_WIDTH = 2.5
ASKEW_WIDTH = 2.5
"""Softness of "further along the axis than across it", pixels."""

MOTION_FREE = 0.2
"""Deviation from the wanted motion, as a share of it, that costs nothing."""
MOTION_WIDTH = 0.4
LEAST_AREA = 4.0
"""Pixels; what is smaller has no track."""

DRIFT = 10.0
"""Pixels that a drifting object of the starter world moves between the first and the last frame."""
GROWN, SHRUNK = 1.3, 0.65
"""How its size changes where it grows or shrinks."""

STILL = "standing still"
_WANTED = {
    "drifting right": (1.0, 0.0, 0.0),
    "drifting left": (-1.0, 0.0, 0.0),
    "drifting up": (0.0, -1.0, 0.0),
    "drifting down": (0.0, 1.0, 0.0),
    "growing": (0.0, 0.0, 1.0),
    "shrinking": (0.0, 0.0, -1.0),
    STILL: (0.0, 0.0, 0.0),
}
"""Drift right and down in units of the starter world's, growth in units of its growing or shrinking."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The words a scorer was trained on, in the order of its answers."""

    colours: tuple[str, ...]
    shapes: tuple[str, ...]
    backgrounds: tuple[str, ...]

    @classmethod
    def of(cls, config: Any) -> Vocabulary:
        """From a module's configuration."""
        return cls(tuple(config.colours), tuple(config.shapes), tuple(config.backgrounds))


@dataclass(frozen=True, slots=True)
class Seen:
    """What was read in the frames of a sample; see `net.Reading`."""

    area_TC: Floats
    centre_TC2: Floats
    shape_TCS: Floats
    ground_TG: Floats
    count_TN: Floats

    def presence(self, colour: int) -> Floats:
        """Probability that there is an object of the colour."""
        return 1.0 - self.shape_TCS[:, colour, -1]


def picture_criteria(scene: Scene, seen: Seen, words: Vocabulary) -> dict[str, float]:
    """The criteria of a picture, each its mean over the frames."""
    colours = [words.colours.index(said.colour) for said in scene.objects]
    criteria_T: dict[str, Floats] = {}
    for colour, said in zip(colours, scene.objects, strict=True):
        criteria_T[f"colour {said.colour}"] = seen.presence(colour)
        shape = words.shapes.index(said.shape)
        criteria_T[f"shape {said.colour} {said.shape}"] = seen.shape_TCS[:, colour, shape]
    if scene.relation is not None:
        criteria_T[f"relation {scene.relation}"] = _relation(scene.relation, seen, *colours)
    criteria_T["background"] = seen.ground_TG[:, words.backgrounds.index(scene.background)]
    criteria_T["count"] = seen.count_TN[:, len(scene.objects)]
    return {name: float(value_T.mean()) for name, value_T in criteria_T.items()}


def motion_criteria(scene: Scene, seen: Seen, words: Vocabulary) -> dict[str, float]:
    """For each said object, how near its track is to the said motion; nothing said means standing still."""
    wanted = scene.motion or STILL
    return {
        f"motion {said.colour}": _motion(wanted, seen, words.colours.index(said.colour))
        for said in scene.objects
    }


def total(picture: dict[str, float], motion: dict[str, float]) -> float:
    """One score: a picture's mean criterion; for a clip, the mean of that and of its motion."""
    parts = [float(np.mean(list(part.values()))) for part in (picture, motion) if part]
    return float(np.mean(parts))


def _relation(relation: str, seen: Seen, first: int, second: int) -> Floats:
    offset_T2 = seen.centre_TC2[:, second] - seen.centre_TC2[:, first]
    across, along = (1, 0) if relation in ("left of", "right of") else (0, 1)
    sign = 1.0 if relation in ("left of", "above") else -1.0
    along_T = sign * offset_T2[:, along]
    holds_T = _sigmoid((along_T - APART) / APART_WIDTH)
    straight_T = _sigmoid((along_T - np.abs(offset_T2[:, across])) / ASKEW_WIDTH)
    return holds_T * straight_T * seen.presence(first) * seen.presence(second)


def _motion(wanted: str, seen: Seen, colour: int) -> float:
    """Nearness of the measured to the wanted motion, times how surely there is an object to move."""
    presence = float(seen.presence(colour).mean())
    if seen.area_TC[:, colour].min() < LEAST_AREA:
        return 0.0
    drift_2 = _change(seen.centre_TC2[:, colour]) / DRIFT
    growth = float(_change(np.log(np.sqrt(seen.area_TC[:, colour]))))
    growth /= math.log(GROWN) if growth > 0 else -math.log(SHRUNK)
    off = math.dist((float(drift_2[0]), float(drift_2[1]), growth), _WANTED[wanted])
    return presence * math.exp(-0.5 * (max(0.0, off - MOTION_FREE) / MOTION_WIDTH) ** 2)


def _change(track_T: Floats) -> Floats:
    """The change over the clip of the straight line nearest to a track: all frames count, none decides."""
    at_T = np.linspace(-0.5, 0.5, len(track_T))
    slope: Floats = np.tensordot(at_T, track_T, axes=1) / float(at_T @ at_T)
    return slope


def _sigmoid(x: Floats) -> Floats:
    return 1.0 / (1.0 + np.exp(-x))


def stack(readings: Sequence[Sequence[Any]]) -> Seen:
    """Readings of single frames, tensors with a first axis of 1, as what was seen in all of them."""
    parts = [
        np.concatenate([part.double().cpu().numpy() for part in parts])
        for parts in zip(*readings, strict=True)
    ]
    return Seen(*parts)
