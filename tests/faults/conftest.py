"""Fixtures of the fault tests: a home whose leases run out quickly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.workshop import Workshop


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    """Short leases, so that a dead worker's run is soon free. Long enough that a busy machine does not lose
    them.
    """
    workshop = Workshop(tmp_path / "home", lease_seconds=2.0, heartbeat_seconds=0.2, max_attempts=2)
    yield workshop
    workshop.close()
