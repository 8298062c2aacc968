"""A process whose own clock is wrong: leases and heartbeats go by the database's alone."""

from __future__ import annotations

import time

import pytest

from mutoscope.platform.catalog import Catalog, WorkerInfo
from tests.support import racers
from tests.support.deadline import until
from tests.support.records import SERVES, queue

HOUR_S = 3600.0
LEASE_S = 120.0


def live_by_another_clock(url: str, ahead: float, lease: float) -> tuple[float, float]:
    """Register, claim and renew in a process whose clock is `ahead`; what it thinks the time is, and when the
    lease ends."""
    right = time.time
    time.time = lambda: right() + ahead  # type: ignore[assignment]
    catalog = Catalog.open(url)
    catalog.workers.register(WorkerInfo("skewed", "there", 1, "cpu", {}))
    (run,) = catalog.runs.claim("skewed", SERVES, lease)
    catalog.runs.renew("skewed", [run.id], lease)
    end = catalog.runs.get(run.id).lease_expires_at
    catalog.close()
    assert end is not None
    return time.time(), end


@pytest.mark.parametrize("ahead", [-HOUR_S, HOUR_S], ids=["an-hour-slow", "an-hour-fast"])
def test_a_lease_lasts_as_long_as_it_says(any_catalog: Catalog, any_catalog_url: str, ahead: float) -> None:
    queue(any_catalog)
    ((thought, end),) = racers.race(live_by_another_clock, [(any_catalog_url, ahead, LEASE_S)])
    # Everybody else's clock, and the database's, are right: `end` is LEASE_S from now, an hour off for them.
    assert abs(end - thought - LEASE_S) > HOUR_S / 2
    assert any_catalog.runs.claim("punctual", SERVES, LEASE_S) == [], "it still holds"
    (worker,) = any_catalog.workers.alive()
    assert worker.age is not None
    assert 0 <= worker.age < HOUR_S / 2


def test_a_lease_of_a_fast_clock_ends_too(any_catalog: Catalog, any_catalog_url: str) -> None:
    queue(any_catalog)
    racers.race(live_by_another_clock, [(any_catalog_url, HOUR_S, 0.001)])
    taken = until(lambda: any_catalog.runs.claim("punctual", SERVES, LEASE_S), "the lease runs out")
    assert [run.attempt for run in taken] == [2]
