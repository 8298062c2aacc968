"""Pictures to learn reading from: rendered scenes with everything that can be wrong with a drawn one.

Objects are missing, faded, half way between two shapes or two colours, doubled, one too many; edges wobble,
colours drift, pixels are noisy and blurred. Labels are shares, not classes: an object that is three quarters
there is labelled so, which is what makes the trained reader's credit partial.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from mutoscope.models.reward.scene.net import SIDE
from mutoscope.models.starter.grammar import BACKGROUNDS, COLOURS, SHAPES, Scene, SceneObject, sample_scene
from mutoscope.models.starter.render import BACKGROUND_RGB, OBJECT_RGB, Placement, place, render_many

CELLS = SIDE // 2
MOST = 3
"""Objects of the fullest picture."""
_COUNTS = 4


class Batch(NamedTuple):
    """Pictures with the shares that are true of them; names as in `scene_net`."""

    pixels_B3HW: Tensor
    ink_BCHW: Tensor
    shape_BCS: Tensor
    ground_BG: Tensor
    count_BN: Tensor


class _Object(NamedTuple):
    colour: int
    shapes: tuple[int, int]
    mix: float
    """Share of the second shape."""
    presence: float
    spot: Placement


def draw(rng: np.random.Generator, pictures: int) -> Batch:
    """A batch of `pictures`, decided by `rng` alone."""
    drawn = [_objects(rng) for _ in range(pictures)]
    grounds = rng.integers(0, len(BACKGROUNDS), (pictures, 2))
    ground_mix = np.where(rng.random(pictures) < 0.1, rng.random(pictures), 0.0)
    cover_BNHW = _wobble(rng, _covers(drawn))
    pixels_B3HW = _paint(rng, drawn, cover_BNHW, grounds, ground_mix)
    ground_BG = _shares(grounds, ground_mix, len(BACKGROUNDS))
    return Batch(
        _develop(rng, pixels_B3HW),
        _ink(drawn, cover_BNHW),
        _shape_shares(drawn),
        torch.from_numpy(ground_BG),
        _count_shares(drawn),
    )


def _objects(rng: np.random.Generator) -> list[_Object]:
    """What one picture holds: mostly one or two objects as the grammar has them, sometimes anything."""
    if rng.random() < 0.55:
        scene = sample_scene(rng, "train", motion_share=0.0)
        said = [(COLOURS.index(o.colour), SHAPES.index(o.shape)) for o in scene.objects]
        spots = list(place(scene, rng))
    else:
        count = int(rng.choice([0, 1, 2, 3], p=[0.08, 0.25, 0.37, 0.3]))
        said = [(int(rng.integers(len(COLOURS))), int(rng.integers(len(SHAPES)))) for _ in range(count)]
        spots = [_anywhere(rng) for _ in range(count)]
    return [_spoil(rng, colour, shape, spot) for (colour, shape), spot in zip(said, spots, strict=True)]


def _anywhere(rng: np.random.Generator) -> Placement:
    x, y = rng.uniform(8, 56, 2)
    return Placement(float(x), float(y), float(rng.uniform(6, 16)))


def _spoil(rng: np.random.Generator, colour: int, shape: int, spot: Placement) -> _Object:
    other = int(rng.integers(len(SHAPES))) if rng.random() < 0.2 else shape
    mix = float(rng.random()) if other != shape else 0.0
    presence = float(rng.random()) if rng.random() < 0.12 else 1.0
    return _Object(colour, (shape, other), mix, presence, spot)


def _covers(drawn: list[list[_Object]]) -> Tensor:
    """How much of each pixel each object covers, (B, MOST, 64, 64), from renderings in one colour."""
    index, scenes, spots = [], [], []
    for picture, objects in enumerate(drawn):
        for layer, one in enumerate(objects):
            for turn, shape in enumerate(one.shapes[: 1 + (one.mix > 0)]):
                share = (one.mix if turn else 1 - one.mix) * one.presence
                index.append((picture, layer, share))
                scenes.append(Scene((SceneObject("yellow", SHAPES[shape]),), None, "black"))
                spots.append((one.spot,))
    cover_BNHW = torch.zeros(len(drawn), MOST, SIDE, SIDE)
    if not index:
        return cover_BNHW
    dark, bright = BACKGROUND_RGB["black"][0], OBJECT_RGB["yellow"][0]
    red_NHW = render_many(scenes, spots, SIDE, SIDE)[..., 0].astype(np.float32)
    covers_NHW = torch.from_numpy(np.clip((red_NHW - dark) / (bright - dark), 0, 1))
    for (picture, layer, share), cover_HW in zip(index, covers_NHW, strict=True):
        cover_BNHW[picture, layer] += share * cover_HW
    return cover_BNHW


def _wobble(rng: np.random.Generator, cover_BNHW: Tensor) -> Tensor:
    """Bend the outlines of half the pictures a little, as a model that draws by hand does."""
    pictures = len(cover_BNHW)
    strength_B = np.where(rng.random(pictures) < 0.5, rng.uniform(0, 0.05, pictures), 0.0)
    bumps = rng.standard_normal((pictures, 2, 6, 6)).astype(np.float32) * strength_B[:, None, None, None]
    field_B2HW = functional.interpolate(
        torch.from_numpy(bumps.astype(np.float32)), size=(SIDE, SIDE), mode="bicubic", align_corners=True
    )
    straight_BHW2 = functional.affine_grid(
        torch.eye(2, 3).expand(pictures, 2, 3), [pictures, MOST, SIDE, SIDE], align_corners=False
    )
    bent_BHW2 = straight_BHW2 + field_B2HW.permute(0, 2, 3, 1)
    return functional.grid_sample(cover_BNHW, bent_BHW2, mode="bilinear", align_corners=False)


def _paint(
    rng: np.random.Generator,
    drawn: list[list[_Object]],
    cover_BNHW: Tensor,
    grounds: np.ndarray,
    ground_mix: np.ndarray,
) -> Tensor:
    palette = np.array([BACKGROUND_RGB[word] for word in BACKGROUNDS], np.float32)
    ground_B3 = (
        palette[grounds[:, 0]] * (1 - ground_mix[:, None]) + palette[grounds[:, 1]] * ground_mix[:, None]
    )
    ground_B3 = ground_B3 + rng.normal(0, 4, ground_B3.shape)
    canvas = torch.from_numpy(ground_B3.astype(np.float32))[:, :, None, None].repeat(1, 1, SIDE, SIDE)
    inks = np.array([OBJECT_RGB[word] for word in COLOURS], np.float32)
    ink_BN3 = np.zeros((len(drawn), MOST, 3), np.float32)
    for picture, objects in enumerate(drawn):
        for layer, one in enumerate(objects):
            ink_BN3[picture, layer] = inks[one.colour] + rng.normal(0, 9, 3)
    for layer in range(MOST):
        ink_B311 = torch.from_numpy(ink_BN3[:, layer])[:, :, None, None]
        canvas += cover_BNHW[:, layer, None] * (ink_B311 - canvas)
    return canvas


def _develop(rng: np.random.Generator, pixels_B3HW: Tensor) -> Tensor:
    """Blur and noise, and the signal range of the network."""
    pictures = len(pixels_B3HW)
    soft_B3HW = functional.avg_pool2d(
        functional.pad(pixels_B3HW, (1, 1, 1, 1), mode="replicate"), 3, stride=1
    )
    blur_B = torch.from_numpy(
        np.where(rng.random(pictures) < 0.5, rng.random(pictures), 0.0).astype(np.float32)
    )
    pixels_B3HW = torch.lerp(pixels_B3HW, soft_B3HW, blur_B[:, None, None, None])
    grain_B = np.where(rng.random(pictures) < 0.5, rng.uniform(0, 10, pictures), 0.0)
    grain = rng.standard_normal(pixels_B3HW.shape).astype(np.float32) * grain_B[:, None, None, None].astype(
        np.float32
    )
    return (pixels_B3HW + torch.from_numpy(grain)).clamp(0, 255) / 127.5 - 1


def _ink(drawn: list[list[_Object]], cover_BNHW: Tensor) -> Tensor:
    """Share of each colour, and of the background, in each cell, (B, C + 1, 32, 32)."""
    ink = torch.zeros(len(drawn), len(COLOURS) + 1, SIDE, SIDE)
    ink[:, -1] = 1.0
    for picture, objects in enumerate(drawn):
        for layer, one in enumerate(objects):
            cover_HW = cover_BNHW[picture, layer]
            ink[picture] *= 1 - cover_HW
            ink[picture, one.colour] += cover_HW
    return functional.avg_pool2d(ink, SIDE // CELLS)


def _shape_shares(drawn: list[list[_Object]]) -> Tensor:
    """Of several objects in one colour, the largest is the one that is asked about."""
    shares = torch.zeros(len(drawn), len(COLOURS), len(SHAPES) + 1)
    shares[:, :, -1] = 1.0
    for picture, objects in enumerate(drawn):
        for one in sorted(objects, key=lambda one: one.spot.radius * one.presence):
            answer = torch.zeros(len(SHAPES) + 1)
            answer[one.shapes[0]] += (1 - one.mix) * one.presence
            answer[one.shapes[1]] += one.mix * one.presence
            answer[-1] = 1 - one.presence
            shares[picture, one.colour] = answer
    return shares


def _count_shares(drawn: list[list[_Object]]) -> Tensor:
    """Probability of each number of objects when each is there with its presence."""
    shares = torch.zeros(len(drawn), _COUNTS)
    for picture, objects in enumerate(drawn):
        chances = np.zeros(_COUNTS)
        chances[0] = 1.0
        for one in objects:
            chances[1:] = chances[1:] * (1 - one.presence) + chances[:-1] * one.presence
            chances[0] *= 1 - one.presence
        shares[picture] = torch.from_numpy(chances / chances.sum())
    return shares


def _shares(choices: np.ndarray, mix: np.ndarray, classes: int) -> np.ndarray:
    """Two choices each, mixed, as shares (B, classes)."""
    one_hot = np.eye(classes, dtype=np.float32)
    return (one_hot[choices[:, 0]].T * (1 - mix) + one_hot[choices[:, 1]].T * mix).T.astype(np.float32)
