"""The independent judge: what a picture or a clip shows, read from pixels alone.

Nothing here is shared with the renderer.  The judge holds its own idea of what the colour words look like,
takes the background from the border, finds objects as connected patches of one colour, and names a shape by
measures of its silhouette: holes, solidity, and how much of its bounding box it fills.  Relations come from
centroids, motion from the tracks of centroids and areas.

Pictures are uint8 (H, W, 3); clips uint8 (T, H, W, 3).  Distances are in pixels of a 64-pixel canvas.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from scipy.spatial import ConvexHull, QhullError

from mutoscope.models.starter.grammar import Scene

Image = NDArray[np.uint8]
Mask = NDArray[np.bool_]

COLOUR_WORDS: Final = {
    "red": (215, 35, 45),
    "green": (35, 150, 65),
    "blue": (45, 70, 215),
    "yellow": (245, 210, 50),
    "purple": (145, 50, 165),
    "orange": (245, 130, 30),
}
BACKDROP_WORDS: Final = {
    "white": (248, 248, 248),
    "gray": (150, 154, 158),
    "black": (18, 18, 22),
    "pink": (248, 186, 204),
}

INK_TOLERANCE: Final = 62.0
"""RGB distance within which a pixel counts as solid ink of a colour word."""
OUTLINE_SHARE: Final = 0.5
"""A pixel belongs to an object when it is at least this far from the background towards the ink."""
LEAST_AREA: Final = 24.0
"""Pixels of a 64 x 64 canvas below which a patch is a speck, not an object."""
MOVED: Final = 3.5
"""Net centroid shift, in pixels, that counts as drifting."""
RESCALED: Final = 0.09
"""Net relative change of size (square root of area) that counts as growing or shrinking."""


@dataclass(frozen=True)
class Patch:
    """One object as found: its colour word, its silhouette, its centre and area in canvas pixels."""

    colour: str
    mask: Mask
    x: float
    y: float
    area: float


@dataclass(frozen=True)
class ImageReport:
    """Scores in [0, 1]: per said object colour and shape; relation is None when none was said."""

    colour: tuple[float, ...]
    shape: tuple[float, ...]
    relation: float | None
    background: float
    count: float
    """1 when the picture holds exactly as many objects as were said."""

    @property
    def checks(self) -> tuple[float, ...]:
        relation = () if self.relation is None else (self.relation,)
        return (*self.colour, *self.shape, *relation, self.background, self.count)

    @property
    def mean(self) -> float:
        return float(np.mean(self.checks))

    @property
    def strict(self) -> bool:
        return min(self.checks) >= 1.0


@dataclass(frozen=True)
class VideoReport:
    """What a clip does, against its scene and the picture it was asked to start from."""

    motion: tuple[float, ...]
    """Per said object: 1 when its track is the motion the scene says."""
    first_frame_psnr: float
    """dB between the given picture and frame 0 (peak 255); infinite when equal."""
    last: ImageReport
    """The last frame judged as a picture of the scene."""

    @property
    def motion_right(self) -> bool:
        return min(self.motion) >= 1.0


def backdrop(image: Image) -> tuple[str, NDArray[np.float64]]:
    """The background's word and measured RGB: the median of the border, which objects seldom cover."""
    border = np.concatenate([image[0], image[-1], image[1:-1, 0], image[1:-1, -1]]).astype(np.float64)
    measured = np.median(border, axis=0)
    return _nearest(measured, BACKDROP_WORDS), measured


def find_patches(image: Image) -> list[Patch]:
    """All objects of a picture, largest first."""
    height, width = image.shape[:2]
    unit = (64.0 / height) * (64.0 / width)
    pixels = image.astype(np.float64)
    _, ground = backdrop(image)
    names = list(COLOUR_WORDS)
    inks = np.array([COLOUR_WORDS[n] for n in names], np.float64)
    distance = np.linalg.norm(pixels[:, :, None, :] - inks, axis=-1)
    nearest = distance.argmin(-1)
    off_ground = np.linalg.norm(pixels - ground, axis=-1)
    solid = (distance.min(-1) < INK_TOLERANCE) & (off_ground > distance.min(-1))
    seeds = np.zeros((height, width), np.int32)
    colours: list[str] = []
    for index, name in enumerate(names):
        labels, count = ndimage.label(solid & (nearest == index), structure=np.ones((3, 3)))
        areas = ndimage.sum_labels(np.ones_like(labels), labels, np.arange(1, count + 1)) * unit
        for label, area in enumerate(areas, start=1):
            # Specks, and rims where two colours blend into a third, are not objects.
            if area >= LEAST_AREA and ndimage.binary_erosion(labels == label).any():
                colours.append(name)
                seeds[labels == label] = len(colours)
    if not colours:
        return []
    patches = [_silhouette(pixels, ground, seeds, k, colour) for k, colour in enumerate(colours, start=1)]
    return sorted(patches, key=lambda patch: -patch.area)


def _silhouette(
    pixels: NDArray[np.float64],
    ground: NDArray[np.float64],
    seeds: NDArray[np.int32],
    label: int,
    colour: str,
) -> Patch:
    """Grow a seed of solid ink over the blended rim around it, up to half way to the background."""
    core = seeds == label
    ink = np.median(pixels[core], axis=0)
    towards = ink - ground
    share = (pixels - ground) @ towards / max(float(towards @ towards), 1.0)
    rim = ndimage.binary_dilation(core, iterations=2) & (share >= OUTLINE_SHARE) & (seeds == 0)
    mask = core | rim
    height, width = mask.shape
    ys, xs = np.nonzero(mask)
    scale_y, scale_x = 64.0 / height, 64.0 / width
    x, y = (float(xs.mean()) + 0.5) * scale_x, (float(ys.mean()) + 0.5) * scale_y
    return Patch(colour, mask, x, y, float(len(xs)) * scale_y * scale_x)


def name_shape(mask: Mask) -> str:
    """The shape word a silhouette deserves.

    A ring has a hole; a cross leaves much of its convex hull empty; of the convex shapes a square fills its
    bounding box, a circle pi/4 of it, a triangle half.
    """
    area = float(mask.sum())
    hole = float((ndimage.binary_fill_holes(mask) & ~mask).sum())
    if hole >= 0.06 * area:
        return "ring"
    if area / max(_hull_area(mask), 1.0) < 0.83:
        return "cross"
    ys, xs = np.nonzero(mask)
    box = float((np.ptp(xs) + 1) * (np.ptp(ys) + 1))
    fill = area / box
    if fill < 0.66:
        return "triangle"
    return "square" if fill > 0.89 else "circle"


def _hull_area(mask: Mask) -> float:
    """Area of the convex hull of all pixel corners."""
    ys, xs = np.nonzero(mask)
    corners = np.concatenate([np.stack([xs + dx, ys + dy], 1) for dx in (0, 1) for dy in (0, 1)])
    try:
        return float(ConvexHull(corners).volume)
    except QhullError:
        return float(mask.sum())


def _nearest(rgb: NDArray[np.float64], words: dict[str, tuple[int, int, int]]) -> str:
    return min(words, key=lambda name: float(np.linalg.norm(rgb - np.array(words[name]))))


def _best(patches: list[Patch], colour: str) -> Patch | None:
    """The largest patch of a colour."""
    return next((patch for patch in patches if patch.colour == colour), None)


def _relation_holds(relation: str, first: Patch, second: Patch) -> bool:
    """Whether the centroids say ``relation``, with the named axis clearly dominating."""
    dx, dy = second.x - first.x, second.y - first.y
    along, across = (dx, dy) if relation in ("left of", "right of") else (dy, dx)
    signed = along if relation in ("left of", "above") else -along
    return signed >= 6.0 and signed > abs(across)


def check_image(image: Image, scene: Scene) -> ImageReport:
    """Judge a picture against what was said."""
    patches = find_patches(image)
    found = [_best(patches, said.colour) for said in scene.objects]
    relation: float | None = None
    if scene.relation is not None:
        first, second = found
        relation = float(
            first is not None and second is not None and _relation_holds(scene.relation, first, second)
        )
    return ImageReport(
        colour=tuple(float(patch is not None) for patch in found),
        shape=tuple(
            float(patch is not None and name_shape(patch.mask) == said.shape)
            for patch, said in zip(found, scene.objects, strict=True)
        ),
        relation=relation,
        background=float(backdrop(image)[0] == scene.background),
        count=float(len(patches) == len(scene.objects)),
    )


def name_motion(tracks: list[Patch]) -> str:
    """The motion word of one object's patches over time (at least two)."""
    half = max(1, len(tracks) // 4)
    early, late = tracks[:half], tracks[-half:]

    def change(values: list[float], later: list[float]) -> float:
        # Ends averaged over a quarter of the clip lie 3/4 of the clip apart.
        return (float(np.mean(later)) - float(np.mean(values))) * (len(tracks) - 1) / (len(tracks) - half)

    dx = change([p.x for p in early], [p.x for p in late])
    dy = change([p.y for p in early], [p.y for p in late])
    if max(abs(dx), abs(dy)) >= MOVED:
        if abs(dx) >= abs(dy):
            return "drifting right" if dx > 0 else "drifting left"
        return "drifting down" if dy > 0 else "drifting up"
    sizes = [float(np.sqrt(p.area)) for p in tracks]
    growth = change(sizes[:half], sizes[-half:]) / max(sizes[0], 1.0)
    if abs(growth) >= RESCALED:
        return "growing" if growth > 0 else "shrinking"
    return "standing still"


def check_video(frames: NDArray[np.uint8], scene: Scene, first_image: Image) -> VideoReport:
    """Judge a clip: motion of every said object (nothing said means standing still), first and last frame."""
    per_frame = [find_patches(frame) for frame in frames]
    wanted = scene.motion or "standing still"
    motion = []
    for said in scene.objects:
        seen = [_best(patches, said.colour) for patches in per_frame]
        track = [patch for patch in seen if patch is not None]
        # An object that is missing from a quarter of the frames has no track worth naming.
        lost = len(track) < max(2, 0.75 * len(frames))
        motion.append(0.0 if lost else float(name_motion(track) == wanted))
    error = float(np.mean((frames[0].astype(np.float64) - first_image.astype(np.float64)) ** 2))
    psnr = float("inf") if error == 0 else float(10 * np.log10(255.0**2 / error))
    return VideoReport(tuple(motion), psnr, check_image(frames[-1], scene))
