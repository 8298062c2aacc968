"""Weights that an operator names for a worker to hold: a card's live ones, an alias's, or one version's.

wan-i2v                    the live version of every component
wan-i2v@candidate          every component that has the alias, the others live
wan-i2v/transformer@12     that version, the others live
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mutoscope.platform.catalog import Catalog
from mutoscope.platform.engine.card import Card
from mutoscope.platform.errors import InvalidParameter, UnknownReference


@dataclass(frozen=True, slots=True)
class Selection:
    """What a text names.

    Attributes:
        chosen: digest by component, of those that are named; nothing for a card as a whole.
        weights: digest of every component, with the live ones for those that are not named.
        follows: the name is an alias, which may come to mean other weights.
    """

    text: str
    card: str
    chosen: dict[str, str]
    weights: dict[str, str]
    follows: bool


def select(catalog: Catalog, served: Mapping[str, Card], text: str) -> Selection:
    """Look up what a text names now.

    Raises:
        InvalidParameter: a card that is not among those served.
        UnknownReference: no such version or alias, or a card without weights.
    """
    path, at, suffix = text.partition("@")
    card, _, component = path.partition("/")
    if card not in served:
        raise InvalidParameter("card", card, f"this worker serves {', '.join(sorted(served))}")
    if component:
        chosen = {component: catalog.weights.get(text).digest}
    elif at:
        chosen = {name: version.digest for name, version in catalog.weights.aliased(card, suffix).items()}
    else:
        chosen = {}
    live = catalog.weights.live(served[card].weights_card)
    weights = {name: version.digest for name, version in live.items()} | chosen
    if not weights or (at and not chosen):
        raise UnknownReference(
            f"{text} names no weights: `mutoscope weights list {card}` shows those there are"
        )
    return Selection(text, card, chosen, weights, bool(at) and not suffix.isdecimal())
