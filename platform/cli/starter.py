"""Bringing a home to a usable state: schema, store, and the weights that ship with the package."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from mutoscope.models.registry import cards, get_card
from mutoscope.models.starter.folders import starter_folder
from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.cli.catalog import upgrade_progress
from mutoscope.platform.cli.home import Home
from mutoscope.platform.custody.users import register
from mutoscope.platform.engine.card import Card
from mutoscope.platform.errors import StoreUnwritable
from mutoscope.platform.orchestration.importing import import_folder

STARTER_ORIGIN = "starter"
"""Recorded with an import of shipped weights, which tells them from weights a person brought."""


def check_home(home: Home) -> None:
    """Refuse at once, before anything has been started, what could not be used later.

    Raises:
        StoreUnwritable: the home or the store.
        SchemaMismatch: a newer Mutoscope has upgraded the catalog. CatalogError: it does not answer.
    """
    try:
        home.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnwritable(
            f"the home {home.path} cannot be made ({error.strerror}): set MUTOSCOPE_HOME to a writable folder"
        ) from None
    ArtifactStore.of(home.settings).check_writable()
    Catalog.check_upgradable(home.settings.database_url)


def check_cards(wanted: Iterable[str]) -> None:
    """Raise UnknownCard for a card that is asked for and not declared."""
    for card_id in wanted:
        get_card(card_id)


def check_prepared(home: Home) -> None:
    """Refuse, before anything has been started, a catalog that another host has to prepare first.

    Raises:
        SchemaMismatch: it has no schema yet, or one of another revision.
        OtherStore: its bytes are kept in another store than the one configured here.
    """
    register(home.catalog, home.store)


def prepare(home: Home, say: Callable[[str], None]) -> None:
    """Migrate the catalog and import starter weights where they are due. Repeating it changes nothing."""
    started = time.monotonic()
    with upgrade_progress() as show:
        Catalog.migrate(home.settings.database_url, show)
    say(f"{'catalog':<14} ready after {time.monotonic() - started:.1f} s")
    register(home.catalog, home.store)
    for card in cards().values():
        _import_starter(home, card, say)


def _import_starter(home: Home, card: Card, say: Callable[[str], None]) -> None:
    folder = starter_folder(card.id)
    if folder is None or not _is_due(home, card):
        return
    before = home.catalog.weights.live(card.id)
    after = import_folder(home.catalog, home.store, card, folder, origin=STARTER_ORIGIN)
    changed = sorted(name for name, version in after.items() if before.get(name) != version)
    if changed:
        say(f"{card.id:<14} starter weights imported: {', '.join(str(after[name]) for name in changed)}")


def _is_due(home: Home, card: Card) -> bool:
    """Whether the card has no weights, or only such as came with the package: others are never replaced."""
    live = home.catalog.weights.live(card.id)
    for version in live.values():
        run = home.catalog.runs.get(version.produced_by_run) if version.produced_by_run else None
        if run is None or run.kind != "import" or run.parameters.get("origin") != STARTER_ORIGIN:
            return False
    return True
