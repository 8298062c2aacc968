"""Terse prompts: what a person types in a hurry, and the full caption that was meant.

``red circle, blue square left`` says where the *second* thing is; ``red circle left blue square`` and ``red
circle left of blue square`` where the first one is.  An unsaid background is white.  Two things without a
relation may stand anyhow: whoever completes such a prompt chooses.  The starter refiner learns this language
from pairs of both texts.

The held-out split is the grammar's: no terse prompt of a held-out scene is ever trained on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from mutoscope.models.starter.grammar import (
    DEFAULT_BACKGROUND,
    MIRRORED,
    RELATIONS,
    CaptionError,
    Scene,
    Split,
    caption_of,
    paraphrase,
    parse,
    sample_scene,
)

TERSE_WORDS: Final = ("and", "with", "in", "front", "it", "still", "over", "under")
"""Words of terse prompts that no caption holds."""

MOTION_SHARE: Final = 0.5
VAGUE_SHARE: Final = 0.12
"""Part of the two-object prompts that leave the relation to the reader."""
SPELLED_SHARE: Final = 0.2
"""Part of the prompts that are captions already; completing one changes its wording at most."""

_SHORT: Final = {"left of": "left", "right of": "right", "above": "above", "below": "below"}
_PREPOSITIONS: Final = {"above": ("above", "over"), "below": ("below", "under")}


@dataclass(frozen=True)
class Pair:
    """A terse prompt and its full caption.

    ``vague``: the prompt leaves a choice, of which ``full`` is one outcome.
    """

    terse: str
    full: str
    vague: bool = False

    def completed_by(self, text: str) -> bool:
        """Whether ``text`` is a caption of what the prompt says, in whatever words and from either side."""
        try:
            said, meant = parse(text), parse(self.full)
        except CaptionError:
            return False
        if said.motion != meant.motion:
            return False
        relations = RELATIONS if self.vague else (meant.relation,)
        allowed = [replace(meant, relation=relation).canonical() for relation in relations]
        return said.canonical() in allowed


def sample_pair(rng: np.random.Generator, split: Split = "train") -> Pair:
    """A pair about a scene of ``split``."""
    scene = sample_scene(rng, split, motion_share=MOTION_SHARE)
    if rng.random() < SPELLED_SHARE:
        caption = paraphrase(scene, rng)
        return Pair(caption, caption_of(parse(caption)))
    vague = scene.relation is not None and rng.random() < VAGUE_SHARE
    words = _objects(scene, rng, vague)
    extras = [part for part in (_background(scene, rng), _motion(scene, rng)) if part]
    if len(extras) == 2 and rng.random() < 0.3:
        extras.reverse()
    for extra in extras:
        words += (" " if rng.random() < 0.4 else ", ") + extra
    return Pair(words, caption_of(scene), vague)


def _objects(scene: Scene, rng: np.random.Generator, vague: bool) -> str:
    """The things and how they stand; ``scene`` is told from its first object's side."""
    first, *others = (f"{thing.colour} {thing.shape}" for thing in scene.objects)
    if not others:
        return first
    second, relation = others[0], scene.relation
    assert relation is not None
    if vague:
        return f"{first}{(', ', ' and ', ' with ')[rng.integers(3)]}{second}"
    match rng.integers(4):
        case 0:  # the second thing's side
            return f"{first}, {second} {_SHORT[MIRRORED[relation]]}"
        case 1:
            return f"{first} {_SHORT[relation]} {second}"
        case 2:
            return f"{first} {relation} {second}"
        case _:
            said = _PREPOSITIONS.get(relation, (relation,))
            return f"{first} {said[rng.integers(len(said))]} {second}"


def _background(scene: Scene, rng: np.random.Generator) -> str:
    if scene.background == DEFAULT_BACKGROUND and rng.random() < 0.7:
        return ""
    spelled = "grey" if scene.background == "gray" and rng.random() < 0.3 else scene.background
    return (f"on {spelled}", f"{spelled} background", f"in front of {spelled}")[rng.integers(3)]


def _motion(scene: Scene, rng: np.random.Generator) -> str:
    if scene.motion is None:
        return ""
    if scene.motion == "standing still":
        return ("still", "standing still")[rng.integers(2)]
    return scene.motion.replace("drifting", ("drifting", "moving")[rng.integers(2)])
