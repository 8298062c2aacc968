"""Which cards exist, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest

from mutoscope.models import registry
from mutoscope.platform.engine.card import Card, resolve_entrypoint
from mutoscope.platform.errors import InvalidInput, UnknownCard


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The registry as a new process sees it."""
    monkeypatch.delenv(registry.VARIABLE, raising=False)
    monkeypatch.setattr(registry, "cards", registry.cards.__wrapped__)
    return monkeypatch


def install(monkeypatch: pytest.MonkeyPatch, *origins: str) -> None:
    entries = [
        EntryPoint(f"card{at}", origin, registry.ENTRY_POINT_GROUP) for at, origin in enumerate(origins)
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: entries)


BUILT_IN = [
    *("flux-t2i", "wan-i2v", "ltx2-av", "wan-t2v", "wan-adaptive", "cosmos3-omni"),
    *("refiner-lm", "unirl-qwenflux", "multi-expert"),
    *("video-frame", "video-join", "contact-sheet", "line-charts", "picture-statistics"),
    *("reward-scene", "reward-ocr", "reward-clip", "scene-check"),
    "rollout-group",
    *("flux-t2i-trainer", "wan-i2v-trainer", "refiner-lm-trainer", "unirl-qwenflux-trainer"),
    "multi-expert-trainer",
    *("starter-image-trainer", "starter-video-trainer", "starter-refiner-trainer", "starter-scorer-trainer"),
]


def test_built_in_cards(fresh: pytest.MonkeyPatch) -> None:
    assert list(registry.cards()) == BUILT_IN
    assert registry.get_card("flux-t2i").id == "flux-t2i"


@pytest.mark.parametrize("card_id", BUILT_IN)
def test_every_entrypoint_of_a_built_in_card_resolves(card_id: str) -> None:
    card = registry.get_card(card_id)
    assert all(callable(resolve_entrypoint(name)) for name in (card.inspector, card.loader, card.builder))


def twin(cards: Mapping[str, Card]) -> Card:
    return replace(cards["flux-t2i"], id="twin")


def orphan(cards: Mapping[str, Card]) -> Card:
    return cards["sdxl"]


def test_a_function_makes_a_card_of_those_before_it(fresh: pytest.MonkeyPatch) -> None:
    fresh.setenv(registry.VARIABLE, f"{__name__}:twin")
    assert registry.get_card("twin").components == registry.get_card("flux-t2i").components


def test_unknown_card_lists_the_known_ones(fresh: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownCard, match="card 'sdxl' is unknown: use one of flux-t2i, wan-i2v"):
        registry.get_card("sdxl")


def test_installed_cards_and_those_of_the_variable(fresh: pytest.MonkeyPatch) -> None:
    fresh.setenv(registry.VARIABLE, "tests.engine.toy:CARD, ")
    assert list(registry.cards()) == [*BUILT_IN, "toy"]
    fresh.delenv(registry.VARIABLE)
    install(fresh, "tests.engine.toy:CARD")
    found = registry.cards()["toy"]
    assert isinstance(found, Card)


@pytest.mark.parametrize(
    ("origin", "message"),
    [
        ("tests.engine.toy:RECIPE", "is a Recipe, not a Card"),
        ("tests.engine.toy:NOTHING", "card tests.engine.toy:NOTHING cannot be imported"),
        ("no_such_package.card:CARD", "card no_such_package.card:CARD cannot be imported"),
        ("mutoscope.models.flux.card:CARD", "card id 'flux-t2i' is declared twice"),
        (f"{__name__}:orphan", "orphan is made of 'sdxl', which is unknown: list it before"),
    ],
)
def test_refused_origins(fresh: pytest.MonkeyPatch, origin: str, message: str) -> None:
    install(fresh, origin)
    with pytest.raises(InvalidInput, match=message):
        registry.cards()
