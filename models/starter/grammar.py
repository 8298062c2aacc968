"""The closed language of the starter world: scenes, captions, and the split nobody may train across.

A *scene* is what a caption means; a *caption* is one of several ways to say it.  ``a red circle left of a
blue square`` and ``a blue square right of a red circle`` say the same scene, so the held-out split is
decided on the canonical scene (colours, shapes, relation, background) and never on the words: no paraphrase,
swapped twin, or motion variant of a held-out scene is ever in the training set.

Numpy only: the grammar is also used by processes that have no torch.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, Literal

import numpy as np

Split = Literal["train", "held_out"]

COLOURS: Final = ("red", "green", "blue", "yellow", "purple", "orange")
SHAPES: Final = ("circle", "square", "triangle", "cross", "ring")
BACKGROUNDS: Final = ("white", "gray", "black", "pink")
DEFAULT_BACKGROUND: Final = "white"
RELATIONS: Final = ("left of", "right of", "above", "below")
MIRRORED: Final = {"left of": "right of", "right of": "left of", "above": "below", "below": "above"}
CANONICAL_RELATIONS: Final = ("left of", "above")
MOTIONS: Final = (
    "drifting right",
    "drifting left",
    "drifting up",
    "drifting down",
    "growing",
    "shrinking",
    "standing still",
)

WORDS: Final = (
    *(",", "a", "an", "the", "to", "of", "on", "left", "right", "above", "below", "background"),
    *COLOURS,
    *SHAPES,
    *BACKGROUNDS,
    "grey",
    *("drifting", "moving", "up", "down", "growing", "shrinking", "standing", "still"),
)
"""Every word a caption can hold, in the order the tokenizer numbers them."""

HELD_OUT_ONE_IN: Final = 6
_SPLIT_DOMAIN: Final = b"mutoscope.starter.scene/1\0"


class CaptionError(ValueError):
    """The text is not a caption of the starter grammar."""


@dataclass(frozen=True, order=True)
class SceneObject:
    """One coloured shape."""

    colour: str
    shape: str

    def __post_init__(self) -> None:
        _require("colour", self.colour, COLOURS)
        _require("shape", self.shape, SHAPES)

    @property
    def phrase(self) -> str:
        article = "an" if self.colour[0] in "aeiou" else "a"
        return f"{article} {self.colour} {self.shape}"


@dataclass(frozen=True)
class Scene:
    """One or two objects, how they stand, what is behind them, and how they move (``None``: unsaid).

    Two objects never share a colour: the world is one where every object can be found by colour alone.
    """

    objects: tuple[SceneObject, ...]
    relation: str | None = None
    background: str = DEFAULT_BACKGROUND
    motion: str | None = None

    def __post_init__(self) -> None:
        _require("background", self.background, BACKGROUNDS)
        if self.motion is not None:
            _require("motion", self.motion, MOTIONS)
        if len(self.objects) == 1:
            if self.relation is not None:
                raise CaptionError(f"relation={self.relation!r} needs two objects; name a second object")
        elif len(self.objects) == 2:
            _require("relation", self.relation, RELATIONS)
            if self.objects[0].colour == self.objects[1].colour:
                raise CaptionError(
                    f"colour={self.objects[0].colour!r} is used twice; give each object its own"
                )
        else:
            raise CaptionError(f"objects={len(self.objects)}; a scene holds one or two objects")

    def swapped(self) -> Scene:
        """The same picture said from the other object's side; a single object is its own twin."""
        if self.relation is None:
            return self
        return replace(self, objects=self.objects[::-1], relation=MIRRORED[self.relation])

    def canonical(self) -> Scene:
        """The one representative of all scenes that mean the same picture; motion is not part of a
        picture.
        """
        still = replace(self, motion=None)
        return still if self.relation in (None, *CANONICAL_RELATIONS) else still.swapped()

    @property
    def split(self) -> Split:
        return _split_of(self.canonical())


@cache
def _split_of(canonical: Scene) -> Split:
    digest = hashlib.sha256(_SPLIT_DOMAIN + caption_of(canonical).encode()).digest()
    return "held_out" if int.from_bytes(digest[:8], "big") % HELD_OUT_ONE_IN == 0 else "train"


def _require(field: str, value: object, allowed: Iterable[str]) -> None:
    names = tuple(allowed)
    if value not in names:
        raise CaptionError(f"{field}={value!r} is unknown; choose one of {', '.join(names)}")


def caption_of(scene: Scene) -> str:
    """The plain caption of a scene, every part said in full."""
    words = scene.objects[0].phrase
    if scene.relation is not None:
        words += f" {scene.relation} {scene.objects[1].phrase}"
    words += f" on a {scene.background} background"
    return words if scene.motion is None else f"{words}, {scene.motion}"


def paraphrase(scene: Scene, rng: np.random.Generator) -> str:
    """One of the ways to say ``scene``, chosen by ``rng``; ``parse`` gives back an equal picture."""
    said = scene.swapped() if rng.random() < 0.5 else scene
    words = said.objects[0].phrase
    if said.relation is not None:
        long_form = said.relation in ("left of", "right of") and rng.random() < 0.2
        words += f" {'to the ' if long_form else ''}{said.relation} {said.objects[1].phrase}"
    if said.background != DEFAULT_BACKGROUND or rng.random() < 0.4:
        spelled = "grey" if said.background == "gray" and rng.random() < 0.3 else said.background
        words += f" on a {spelled} background"
    if said.motion is not None:
        verb = "moving" if rng.random() < 0.15 else "drifting"
        words += f", {said.motion.replace('drifting', verb)}"
    return words


_OBJECT = rf"(?:a|an|the) ({'|'.join(COLOURS)}) ({'|'.join(SHAPES)})"
_CAPTION = re.compile(
    rf"{_OBJECT}(?: (?:to the )?({'|'.join(RELATIONS)}) {_OBJECT})?"
    rf"(?: on (?:a|the) ({'|'.join(BACKGROUNDS)}|grey) background)?"
    rf"(?: ?, ?({'|'.join(MOTIONS)}))?"
)


def parse(caption: str) -> Scene:
    """The scene a caption means.  Raises CaptionError when the text lies outside the grammar."""
    text = re.sub(r"\s+", " ", caption.strip().lower()).rstrip(".").replace("moving", "drifting")
    match = _CAPTION.fullmatch(text)
    if match is None:
        raise CaptionError(
            f"caption={caption!r} is outside the grammar; say e.g. 'a red circle left of a blue square'"
        )
    colour, shape, relation, colour2, shape2, background, motion = match.groups()
    objects: tuple[SceneObject, ...] = (SceneObject(colour, shape),)
    if relation is not None:
        objects += (SceneObject(colour2, shape2),)
    background = {"grey": "gray", None: DEFAULT_BACKGROUND}.get(background, background)
    return Scene(objects, relation, background, motion)


@cache
def canonical_scenes(objects: Literal[1, 2], split: Split) -> tuple[Scene, ...]:
    """Every canonical scene of one split, in a fixed order."""
    singles = [SceneObject(colour, shape) for colour in COLOURS for shape in SHAPES]
    if objects == 1:
        scenes = [Scene((one,), None, background) for one in singles for background in BACKGROUNDS]
    else:
        scenes = [
            Scene((first, second), relation, background)
            for first in singles
            for second in singles
            if first.colour != second.colour
            for relation in CANONICAL_RELATIONS
            for background in BACKGROUNDS
        ]
    return tuple(scene for scene in scenes if scene.split == split)


def sample_scene(
    rng: np.random.Generator,
    split: Split = "train",
    objects: Literal[1, 2] | None = None,
    motion_share: float = 0.6,
) -> Scene:
    """A scene of ``split``: one object in four times when ``objects`` is None, white behind half of them,
    a motion with probability ``motion_share``, told from either object's side."""
    count: Literal[1, 2] = objects if objects is not None else (1 if rng.random() < 0.25 else 2)
    pool = canonical_scenes(count, split)
    scene = pool[rng.integers(len(pool))]
    if scene.background != DEFAULT_BACKGROUND and rng.random() < 1 / 3:
        # White is what an unsaid background means, so it is met more often; a scene whose white sibling lies
        # in the other split stays as drawn, or the split would leak.
        white = replace(scene, background=DEFAULT_BACKGROUND)
        scene = white if white.split == split else scene
    if rng.random() < motion_share:
        scene = replace(scene, motion=MOTIONS[rng.integers(len(MOTIONS))])
    return scene.swapped() if rng.random() < 0.5 else scene
