"""The composed cards. No torch.

Refiners form a chain: each rewrites what the one before it wrote. The chain ends early at a refiner that
leaves the text as it was, and a refiner that writes nothing leaves it too.
"""

from __future__ import annotations

from collections.abc import Mapping

from mutoscope.models.unified.composition import Composition, compose
from mutoscope.platform.engine.card import Card

PACKAGE = "mutoscope.models.unified"

MOST_REFINERS = 8

UNIRL_QWENFLUX = Composition(
    id="unirl-qwenflux",
    title="Prompt refiner and FLUX.1, two experts",
    generator="flux-t2i",
    refiners=("refiner",),
)

MULTI_EXPERT = Composition(
    id="multi-expert",
    title="A chain of prompt refiners and FLUX.1",
    generator="flux-t2i",
    refiners=tuple(f"refiner_{number}" for number in range(1, MOST_REFINERS + 1)),
)


def unirl_qwenflux(cards: Mapping[str, Card]) -> Card:
    """The card `unirl-qwenflux`, made of the cards of its parts."""
    return compose(UNIRL_QWENFLUX, cards, PACKAGE)


def multi_expert(cards: Mapping[str, Card]) -> Card:
    """The card `multi-expert`, made of the cards of its parts."""
    return compose(MULTI_EXPERT, cards, PACKAGE)
