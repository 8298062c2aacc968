"""A whole platform in a folder: catalog, store, test card with live weights. No processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mutoscope.models import registry
from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.orchestration.pages import RUN_PAGES
from mutoscope.platform.orchestration.runtime import Runtime, use_runtime
from mutoscope.platform.settings import Settings
from tests.support.empty import put_catalog

WEB_URL = "http://127.0.0.1:4280"


@contextmanager
def platform_in(home: Path, **elsewhere: str) -> Iterator[Runtime]:
    """An empty platform, which is the process's runtime while the block lasts.

    Args:
        elsewhere: `store_url` and `database_url` (of an empty, migrated catalog) that lie outside the home.
    """
    # The lease is long: the fake worker sends no heartbeats, and a choked machine must not make it look dead.
    settings = Settings(home=home, web_url=WEB_URL, poll_seconds=0.005, lease_seconds=3600, **elsewhere)
    if "database_url" not in elsewhere:
        put_catalog(home)
    catalog = Catalog.open(settings.database_url)
    try:
        with use_runtime(Runtime(settings, catalog, ArtifactStore.open(settings.store_url))) as runtime:
            yield runtime
    finally:
        RUN_PAGES.drain()
        catalog.close()


@contextmanager
def cards_registered(monkeypatch: pytest.MonkeyPatch, *origins: str) -> Iterator[None]:
    """Cards beside the built-in ones while the block lasts, by "module:attribute"."""
    with monkeypatch.context() as patch:
        patch.setenv(registry.VARIABLE, ",".join(origins))
        registry.cards.cache_clear()
        yield
    registry.cards.cache_clear()
