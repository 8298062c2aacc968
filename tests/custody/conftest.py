"""A home with a small history, and one to bring it to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mutoscope.platform.orchestration.runtime import Runtime
from tests.custody.archives import History, make_history
from tests.support.platform import cards_registered, platform_in


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The test card, registered."""
    with cards_registered(monkeypatch, "tests.support.tinycard.card:CARD"):
        yield


@pytest.fixture
def source(tmp_path: Path, cards: None) -> Iterator[Runtime]:
    """The home that things come from."""
    folder = tmp_path / "source"
    folder.mkdir()
    with platform_in(folder) as runtime:
        yield runtime


@pytest.fixture
def history(source: Runtime) -> History:
    """What was made in `source`."""
    return make_history(source)


@pytest.fixture
def target(tmp_path: Path, source: Runtime) -> Iterator[Runtime]:
    """An empty home, the process's own from here on."""
    folder = tmp_path / "target"
    folder.mkdir()
    with platform_in(folder) as runtime:
        yield runtime
