"""Which cards exist. No torch: a card is a declaration.

Families of this package are listed here. Others are found through the entry point group ``mutoscope.cards``,
and through ``MUTOSCOPE_CARDS``, a comma-separated list for cards that are being tried out and not yet
packaged. Every origin is "package.module:attribute" and names a `Card`, or a function that makes one of the
cards listed before it: `(Mapping[str, Card]) -> Card`.
"""

from __future__ import annotations

import os
from functools import lru_cache
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import TYPE_CHECKING

from mutoscope.platform.engine.card import Card, resolve_entrypoint
from mutoscope.platform.errors import InvalidInput, UnknownCard

if TYPE_CHECKING:
    from collections.abc import Mapping

ENTRY_POINT_GROUP = "mutoscope.cards"
VARIABLE = "MUTOSCOPE_CARDS"

_BUILT_IN = (
    "mutoscope.models.flux.card:CARD",
    "mutoscope.models.wan.card:CARD",
    "mutoscope.models.ltx2.card:CARD",
    "mutoscope.models.wan.card:T2V",
    "mutoscope.models.wan.adaptive_card:CARD",
    "mutoscope.models.cosmos3.card:CARD",
    "mutoscope.models.refiner.card:CARD",
    "mutoscope.models.unified.card:unirl_qwenflux",
    "mutoscope.models.unified.card:multi_expert",
    "mutoscope.models.media.card:FRAME",
    "mutoscope.models.media.card:JOIN",
    "mutoscope.models.media.card:SHEET",
    "mutoscope.models.media.card:CHARTS",
    "mutoscope.models.media.card:STATISTICS",
    "mutoscope.models.reward.scene.card:CARD",
    "mutoscope.models.reward.ocr.card:CARD",
    "mutoscope.models.reward.clip.card:CARD",
    "mutoscope.models.reward.check.card:CARD",
    "mutoscope.platform.training.rollout_card:CARD",
    "mutoscope.platform.training.cards:flux_t2i",
    "mutoscope.platform.training.cards:wan_i2v",
    "mutoscope.platform.training.cards:refiner_lm",
    "mutoscope.platform.training.cards:unirl_qwenflux",
    "mutoscope.platform.training.cards:multi_expert",
    "mutoscope.models.starter.trainers:IMAGE_TRAINER",
    "mutoscope.models.starter.trainers:VIDEO_TRAINER",
    "mutoscope.models.starter.trainers:REFINER_TRAINER",
    "mutoscope.models.starter.trainers:SCORER_TRAINER",
)


@lru_cache(maxsize=1)
def cards() -> Mapping[str, Card]:
    """Every known card by id, in a stable order: built-in, installed, then those of the environment variable.

    Raises:
        InvalidInput: two cards claim one id, or an origin cannot be imported or names something else.
    """
    found: dict[str, Card] = {}
    for origin in _origins():
        card = _load(origin, found)
        if card.id in found:
            raise InvalidInput(f"card id {card.id!r} is declared twice, again by {origin}: rename one")
        found[card.id] = card
    return MappingProxyType(found)


def _origins() -> list[str]:
    installed = sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name)
    named = (origin.strip() for origin in os.environ.get(VARIABLE, "").split(","))
    return [*_BUILT_IN, *(entry.value for entry in installed), *filter(None, named)]


def _load(origin: str, found: Mapping[str, Card]) -> Card:
    try:
        card = resolve_entrypoint(origin)
        if callable(card):
            card = card(found)
    except KeyError as error:
        raise InvalidInput(f"card {origin} is made of {error}, which is unknown: list it before") from None
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInput(f"card {origin} cannot be imported ({error}): fix or remove the origin") from error
    if not isinstance(card, Card):
        raise InvalidInput(f"{origin} is a {type(card).__name__}, not a Card: name a Card")
    return card


def get_card(card_id: str) -> Card:
    """The card of that id. Raises UnknownCard, which lists the known ids."""
    card = cards().get(card_id)
    if card is None:
        raise UnknownCard(f"card {card_id!r} is unknown: use one of {', '.join(cards())}")
    return card
