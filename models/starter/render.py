"""Scenes to pixels: flat shapes with analytic anti-aliasing, thousands of pictures a second on one core.

Each shape is a signed distance function of pixel coordinates; coverage of a pixel is ``clip(0.5 - d, 0, 1)``,
the area a straight edge at distance ``d`` leaves inside a unit pixel.  Coordinates are in units of a 64-pixel
canvas, so other sizes show the same picture, larger or smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mutoscope.models.starter.grammar import Scene

CANVAS: Final = 64.0

OBJECT_RGB: Final = {
    "red": (220, 30, 40),
    "green": (30, 150, 60),
    "blue": (40, 70, 220),
    "yellow": (250, 215, 40),
    "purple": (145, 45, 170),
    "orange": (250, 130, 20),
}
BACKGROUND_RGB: Final = {
    "white": (250, 250, 250),
    "gray": (150, 155, 160),
    "black": (16, 16, 20),
    "pink": (250, 185, 205),
}

Float = NDArray[np.float32]
Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Placement:
    """Centre and radius (half extent) of one object, in units of the 64-pixel canvas; y grows downwards."""

    x: float
    y: float
    radius: float


def place(scene: Scene, rng: np.random.Generator, spread: float = 1.0) -> tuple[Placement, ...]:
    """Where the objects stand: jittered, but a relation is always told by at least 26 of 64 pixels.

    ``spread`` in [0, 1] narrows the jitter towards the mean placement without moving the mean.
    """

    def draw(low: float, high: float) -> float:
        middle = 0.5 * (low + high)
        return float(middle + spread * (rng.uniform(low, high) - middle))

    if scene.relation is None:
        return (Placement(draw(27, 37), draw(27, 37), draw(11, 14)),)
    middle, half = draw(30.5, 33.5), draw(13.5, 15.0)
    sign = -1.0 if scene.relation in ("left of", "above") else 1.0
    spots = []
    for direction in (sign, -sign):
        along, other = middle + direction * half, draw(28, 36)
        x, y = (along, other) if scene.relation in ("left of", "right of") else (other, along)
        spots.append(Placement(x, y, draw(9.5, 11.5)))
    return tuple(spots)


# Distance functions take offsets from the centre and a radius, all broadcastable to (N, H, W); negative
# inside.


def _circle(dx: Float, dy: Float, radius: Float) -> Float:
    return np.sqrt(dx * dx + dy * dy) - radius


def _square(dx: Float, dy: Float, radius: Float) -> Float:
    return np.maximum(np.abs(dx), np.abs(dy)) - 0.92 * radius


def _triangle(dx: Float, dy: Float, radius: Float) -> Float:
    # Upright and isosceles: apex at -radius, base at +0.9 radius, base half-width 1.05 radius.
    base = dy - 0.9 * radius
    height, half = 1.9, 1.05
    norm = np.float32(1.0 / np.hypot(height, half))
    side = (np.abs(dx) * np.float32(height) - (dy + radius) * np.float32(half)) * norm
    return np.maximum(base, side)


def _cross(dx: Float, dy: Float, radius: Float) -> Float:
    ax, ay = np.abs(dx), np.abs(dy)
    arm = np.float32(0.34) * radius
    return np.minimum(np.maximum(ax - radius, ay - arm), np.maximum(ax - arm, ay - radius))


def _ring(dx: Float, dy: Float, radius: Float) -> Float:
    band = np.float32(0.24) * radius
    return np.abs(np.sqrt(dx * dx + dy * dy) - (radius - band)) - band


_DISTANCE: Final[dict[str, Callable[[Float, Float, Float], Float]]] = {
    "circle": _circle,
    "square": _square,
    "triangle": _triangle,
    "cross": _cross,
    "ring": _ring,
}


def render_many(
    scenes: Sequence[Scene], placements: Sequence[Sequence[Placement]], height: int = 64, width: int = 64
) -> Pixels:
    """Pictures of ``scenes`` with their objects at ``placements``: uint8 (N, height, width, 3)."""
    scale_y, scale_x = height / CANVAS, width / CANVAS
    grid_y = (np.arange(height, dtype=np.float32) + 0.5)[None, :, None]
    grid_x = (np.arange(width, dtype=np.float32) + 0.5)[None, None, :]
    canvas = np.empty((len(scenes), height, width, 3), np.float32)
    canvas[:] = np.array([BACKGROUND_RGB[s.background] for s in scenes], np.float32)[:, None, None, :]
    for layer in range(max(len(scene.objects) for scene in scenes)):
        for shape, distance in _DISTANCE.items():
            rows = [
                n for n, s in enumerate(scenes) if layer < len(s.objects) and s.objects[layer].shape == shape
            ]
            if not rows:
                continue
            spots = [placements[n][layer] for n in rows]
            x = np.array([p.x * scale_x for p in spots], np.float32)[:, None, None]
            y = np.array([p.y * scale_y for p in spots], np.float32)[:, None, None]
            radius = np.array([p.radius * min(scale_x, scale_y) for p in spots], np.float32)[:, None, None]
            cover = np.clip(0.5 - distance(grid_x - x, grid_y - y, radius), 0.0, 1.0)[..., None]
            ink = np.array([OBJECT_RGB[scenes[n].objects[layer].colour] for n in rows], np.float32)
            canvas[rows] += cover * (ink[:, None, None, :] - canvas[rows])
    return (canvas + 0.5).astype(np.uint8)


def render(scene: Scene, placements: Sequence[Placement], height: int = 64, width: int = 64) -> Pixels:
    """One picture: uint8 (height, width, 3)."""
    return render_many([scene], [placements], height, width)[0]
