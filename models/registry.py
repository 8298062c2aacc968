"""Which cards exist. No torch: a card is a declaration.

Families of this package are listed here; others are found through the entry point group ``mutoscope.cards``,
whose entries name a `Card` object.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import TYPE_CHECKING

from mutoscope.platform.engine.card import Card, resolve_entrypoint
from mutoscope.platform.errors import InvalidInput, UnknownCard

if TYPE_CHECKING:
    from collections.abc import Mapping

ENTRY_POINT_GROUP = "mutoscope.cards"

_BUILT_IN = ("mutoscope.models.flux.card:CARD", "mutoscope.models.wan.card:CARD")


@lru_cache(maxsize=1)
def cards() -> Mapping[str, Card]:
    """Every known card by id, in a stable order: the built-in ones, then third parties' by entry point name.

    Raises:
        InvalidInput: two cards claim one id, or an entry point names something that is no card.
    """
    found: dict[str, Card] = {}
    third_party = sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name)
    for origin in (*_BUILT_IN, *(entry.value for entry in third_party)):
        card = resolve_entrypoint(origin)
        if not isinstance(card, Card):
            raise InvalidInput(
                f"{origin} is a {type(card).__name__}, not a Card: point the entry point at a Card"
            )
        if card.id in found:
            raise InvalidInput(f"card id {card.id!r} is declared twice, again by {origin}: rename one")
        found[card.id] = card
    return MappingProxyType(found)


def get_card(card_id: str) -> Card:
    """The card of that id. Raises UnknownCard, which lists the known ids."""
    card = cards().get(card_id)
    if card is None:
        raise UnknownCard(f"card {card_id!r} is unknown: use one of {', '.join(cards())}")
    return card
