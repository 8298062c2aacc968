"""Many claimants, limits and fairness; cancellations and crashes under way. `MUTOSCOPE_RACES=20` repeats."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence

import pytest

from mutoscope.platform.catalog import Catalog, RunRecord
from tests.support import pool_racers, racers
from tests.support.records import queue

LIMITED, FREE = "limited-card", "free-card"
MOST = 3
ROUNDS = int(os.environ.get("MUTOSCOPE_RACES", "1"))

pytestmark = pytest.mark.parametrize("round_", range(ROUNDS), ids=lambda n: f"round{n}")


@pytest.fixture
def url(any_catalog_url: str) -> str:
    """An empty catalog's URL."""
    return any_catalog_url


@pytest.fixture
def catalog(any_catalog: Catalog) -> Catalog:
    return any_catalog


def most_at_once(found: Sequence[RunRecord]) -> int:
    """How many of the runs were under way at the same time, by the database's clock.

    A start is written by whoever saw the end before it committed, so of equal moments the end comes first.
    """
    starts = [(run.started_at or 0.0, 1) for run in found]
    ends = [(run.finished_at or 0.0, -1) for run in found]
    at_once = most = 0
    for _, change in sorted([*starts, *ends]):
        at_once += change
        most = max(most, at_once)
    return most


def test_a_limit_is_never_exceeded_and_every_run_is_done_once(
    url: str, catalog: Catalog, round_: int
) -> None:
    catalog.queues.limit(LIMITED, MOST)
    for n in range(16):
        queue(catalog, f"limited {n}", card=LIMITED)
        queue(catalog, f"free {n}", card=FREE)
    finished = racers.race(pool_racers.serve, [(url, [LIMITED, FREE], 8)] * 5)
    assert sum(finished) == 32
    ended = catalog.runs.list(limit=100)
    assert Counter((run.state, run.attempt) for run in ended) == {("succeeded", 1): 32}
    limited, free = ([run for run in ended if run.card == card] for card in (LIMITED, FREE))
    assert most_at_once(limited) == MOST, "all the places there are, and no more"
    assert most_at_once(free) > MOST, "which is no limit of the others"


def test_a_long_queue_keeps_nobody_waiting_for_its_end(url: str, catalog: Catalog, round_: int) -> None:
    long, *short = [catalog.workflows.start("test.make", {"n": n}) for n in range(7)]
    for n in range(50):
        queue(catalog, f"long {n}", card=FREE, workflow_run_id=long)
    for one in short:
        queue(catalog, one, card=FREE, workflow_run_id=one)
    racers.race(pool_racers.serve, [(url, [FREE], 2)] * 3)
    order = sorted(catalog.runs.list(limit=100), key=lambda run: run.started_at or 0.0)
    last_short = max(n for n, run in enumerate(order) if run.workflow_run_id in short)
    # Three workers with two slots take one of the long queue's for each of the others', at worst.
    assert last_short < 28


def test_a_cancellation_catches_everything_that_is_started_meanwhile(
    url: str, catalog: Catalog, round_: int
) -> None:
    root, other = (catalog.workflows.start(name, {}) for name in ("test.root", "test.other"))
    kept = queue(catalog, "key 0", workflow_run_id=other)
    keys = [f"key {n}" for n in range(3)]
    tasks = [(pool_racers.flow, (url, root, keys[n:] + keys[:n])) for n in range(3)]
    results = racers.race(_call, [*tasks, (pool_racers.cancel_after, (url, root, 6))])
    rows = catalog.workflows.list(parent_id=root, limit=1000)
    assert {row.id for row in rows} == {one for found in results for one in found} - {root}
    assert all(row.cancel_requested for row in rows), "found by the cancellation, or born with it"
    left = [run for run in catalog.runs.list(limit=1000) if not run.finished]
    assert [run.id for run in left] == [kept.id], "whoever else asked for a run has gone, so it ended"
    assert left[0].waiters == 1, "each of those who came and went was counted once"


def test_of_many_who_watch_each_silent_one_has_one_finder(url: str, catalog: Catalog, round_: int) -> None:
    silent = {catalog.workflows.start("test.make", {}, holder="gone", lease_seconds=-1.0) for _ in range(20)}
    taken = racers.race(pool_racers.take_silent, [(url,)] * 5)
    assert Counter(one for found in taken for one in found) == dict.fromkeys(silent, 1)


def _call(target: object, arguments: Sequence[object]) -> object:
    return target(*arguments)  # type: ignore[operator]
