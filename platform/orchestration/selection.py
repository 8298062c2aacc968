"""Which weight versions a run pins where not the live ones are meant.

    {"transformer": "@12"}                  a component's version by number
    {"transformer": "@candidate"}           by alias
    {"transformer": "flux-t2i/transformer@12"}
    "@candidate"                            every component of the card that has this alias
    ["flux-t2i/transformer@12", "flux-t2i@candidate"]

What is not selected stays live. A LoRA is selected as any other version: it brings the base it was made over.

A workflow is started with selections for its cards. They are looked up once, before anything runs, so an
alias that moves meanwhile does not change what the rest of the workflow uses; what a step selects itself goes
before. They travel as tags of the flow run, where the UI shows them and a process elsewhere finds them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from mutoscope.models.registry import get_card
from mutoscope.platform.catalog import Catalog, WeightVersion
from mutoscope.platform.engine.card import RECIPE, Card
from mutoscope.platform.errors import InvalidParameter, UnknownReference
from mutoscope.platform.orchestration.runtime import get_runtime

Weights = str | Mapping[str, str] | Sequence[str]
"""What a caller may write to select the versions of one card."""

Pins = Mapping[str, Mapping[str, str]]
"""Digests by card and component."""

_TAG = "weights="


def select(catalog: Catalog, card_id: str, weights: Weights) -> dict[str, WeightVersion]:
    """The selected version of each component of a card that is selected.

    Raises:
        InvalidParameter: not spelled as above, a component the card does not have, or a version of another
            card or component.
        UnknownReference: no such version or alias.
    """
    card = get_card(card_id)
    if isinstance(weights, Mapping):
        return {
            component: _of_component(catalog, card, component, text) for component, text in weights.items()
        }
    chosen: dict[str, WeightVersion] = {}
    for text in [weights] if isinstance(weights, str) else weights:
        chosen |= _named(catalog, card, text)
    return chosen


def pins_of(catalog: Catalog, texts: Iterable[str], cards: Iterable[str]) -> Pins:
    """The digests that selections for several cards come to.

    Args:
        texts: each names its card, as in ``flux-t2i/transformer@12`` or ``flux-t2i@candidate``.
        cards: the cards that will be run.

    Raises:
        InvalidParameter, UnknownReference: as `select`; also for a card that will not be run.
    """
    serving = sorted({get_card(card_id).weights_card for card_id in cards})
    by_card: dict[str, list[str]] = {}
    for text in texts:
        card_id = text.partition("@")[0].partition("/")[0]
        if card_id not in serving:
            known = ", ".join(serving) or "none"
            raise InvalidParameter("weights", text, f"name a version of a card that is run here: {known}")
        by_card.setdefault(card_id, []).append(text)
    return {card_id: digests_of(select(catalog, card_id, own)) for card_id, own in by_card.items()}


async def fixed(card_id: str, weights: Weights) -> dict[str, str]:
    """A selection as version numbers by component, which `engine_run` takes: what an alias means now stays
    meant when it moves. Raises as `select`.
    """
    chosen = await asyncio.to_thread(select, get_runtime().catalog, card_id, weights)
    return {component: str(version) for component, version in chosen.items()}


def digests_of(versions: Mapping[str, WeightVersion]) -> dict[str, str]:
    """Digest by component."""
    return {component: version.digest for component, version in versions.items()}


def to_tags(texts: Iterable[str]) -> list[str]:
    """Selections as tags of a flow run."""
    return [f"{_TAG}{text}" for text in texts]


def from_tags(tags: Iterable[str]) -> list[str]:
    """The selections among a flow run's tags."""
    return sorted(tag.removeprefix(_TAG) for tag in tags if tag.startswith(_TAG))


def _of_component(catalog: Catalog, card: Card, component: str, text: str) -> WeightVersion:
    _require_component(card, component, text)
    own = f"{card.weights_card}/{component}"
    path, at, _ = str(text).partition("@")
    if not at:
        raise InvalidParameter("weights", text, f"write {own}@12, @12 or @alias")
    if path not in ("", own):
        raise InvalidParameter("weights", text, f"{component} of {card.id} takes a version of {own}")
    return catalog.weights.get(f"{own}@{str(text).partition('@')[2]}")


def _named(catalog: Catalog, card: Card, text: str) -> dict[str, WeightVersion]:
    own = card.weights_card
    path, at, suffix = str(text).partition("@")
    owner, _, component = path.partition("/")
    if not at or not suffix or owner not in ("", own) or (component and not owner):
        raise InvalidParameter("weights", text, f"write {own}/component@12, {own}@alias or @alias for {own}")
    if component:
        return {component: _of_component(catalog, card, component, text)}
    if suffix.isdecimal():
        raise InvalidParameter(
            "weights", text, f"a number is of one component: write {own}/component@{suffix}"
        )
    aliased = catalog.weights.aliased(own, suffix)
    if not aliased:
        raise UnknownReference(
            f"no weights of {own} have the alias {suffix!r}: `mutoscope weights list {own}` shows "
            "those there are"
        )
    return aliased


def _require_component(card: Card, component: str, text: str) -> None:
    known = [*(part.name for part in card.components), RECIPE]
    if component not in known:
        raise InvalidParameter("weights", f"{component}={text}", f"{card.id} has {', '.join(known)}")
