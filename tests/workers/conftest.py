"""Fixtures of the worker tests. One home and one worker process serve all tests that do not stop it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.workshop import WorkerProcess, Workshop


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    """A home for tests that only add to it."""
    workshop = Workshop(tmp_path_factory.mktemp("shared") / "home", concurrency=3)
    yield workshop
    workshop.close()


@pytest.fixture(scope="module")
def serving(shared: Workshop) -> Iterator[WorkerProcess]:
    """The worker of `shared`."""
    with shared.worker() as worker:
        yield worker.wait_ready()


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    """A home of its own."""
    workshop = Workshop(tmp_path / "home")
    yield workshop
    workshop.close()
