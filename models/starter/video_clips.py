"""Training clips as tensors: captioned, moving scenes drawn anew for every step from (seed, step) alone."""

from __future__ import annotations

import numpy as np
import torch

from mutoscope.models.starter.grammar import MOTIONS, Scene, Split, sample_scene
from mutoscope.models.starter.motion import animate, moved
from mutoscope.models.starter.render import CANVAS, Placement, place
from mutoscope.models.starter.video_recipe import FRAMES, SIDE


def draw_scene(rng: np.random.Generator, split: Split = "train", motion_share: float = 1.0) -> Scene:
    """A scene for a clip; motions are equally likely."""
    return sample_scene(rng, split, motion_share=motion_share)


def to_tensor(frames_THWC: np.ndarray) -> torch.Tensor:
    """uint8 (T, H, W, 3) to float (3, T, H, W) in [-1, 1]."""
    return torch.from_numpy(frames_THWC).permute(3, 0, 1, 2).float().div_(127.5).sub_(1.0)


def sample_clips(
    rng: np.random.Generator, count: int, split: Split = "train"
) -> tuple[list[Scene], torch.Tensor]:
    """``count`` scenes and their clips: float (count, 3, 17, 64, 64) in [-1, 1]."""
    scenes = [draw_scene(rng, split) for _ in range(count)]
    return scenes, torch.stack([to_tensor(animate(s, place(s, rng), FRAMES)) for s in scenes])


def sample_crops(rng: np.random.Generator, count: int, side: int) -> torch.Tensor:
    """Crops of clips, mostly around a moving object: float (count, 3, 17, side, side) in [-1, 1]."""
    crops: list[torch.Tensor] = []
    while len(crops) < count:
        scene = draw_scene(rng)
        spots = place(scene, rng)
        clip = to_tensor(animate(scene, spots, FRAMES))
        for spot in spots:
            if len(crops) < count:
                top, left = _crop_corner(rng, scene, spot, side)
                crops.append(clip[:, :, top : top + side, left : left + side])
    return torch.stack(crops)


def _crop_corner(rng: np.random.Generator, scene: Scene, spot: Placement, side: int) -> tuple[int, int]:
    """A corner that keeps the object's middle, at some moment of the clip, inside the crop."""
    (there,) = moved((spot,), scene.motion, float(rng.random()))
    pixels = SIDE / CANVAS
    corner = []
    for centre in (there.y * pixels, there.x * pixels):
        offset = rng.uniform(0.15, 0.85) * side
        corner.append(int(np.clip(round(centre - offset), 0, SIDE - side)))
    return corner[0], corner[1]


__all__ = ["MOTIONS", "draw_scene", "sample_clips", "sample_crops", "to_tensor"]
