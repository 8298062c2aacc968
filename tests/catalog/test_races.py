"""Many processes, few keys. `MUTOSCOPE_RACES=20 pytest tests/catalog/test_races.py` repeats each race."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from mutoscope.platform.catalog import Catalog
from tests.support import racers
from tests.support.records import an_artifact, queue

PROCESSES = 8
ROUNDS = int(os.environ.get("MUTOSCOPE_RACES", "1"))

pytestmark = pytest.mark.parametrize("round_", range(ROUNDS), ids=lambda n: f"round{n}")


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def fresh(kind: str, request: pytest.FixtureRequest) -> str:
    """An empty catalog's URL."""
    url: str = request.getfixturevalue("catalog_url" if kind == "sqlite" else "postgres_catalog_url")
    return url


def test_each_key_is_computed_once_and_nobody_meets_a_locked_database(fresh: str, round_: int) -> None:
    url, keys = fresh, [f"key-{n}" for n in range(12)]
    orders = [keys[n:] + keys[:n] for n in range(PROCESSES)]
    answers = racers.race(racers.want_and_work, [(url, order) for order in orders])
    assert all(answer == answers[0] for answer in answers), "every caller is answered by the same run"

    catalog = Catalog.open(url)
    runs = catalog.runs.list(limit=1000)
    assert Counter(run.state for run in runs) == {"succeeded": len(keys)}
    assert {run.attempt for run in runs} == {1}
    assert {run.id for run in runs} == set(answers[0].values())
    for run in runs:  # one call computed it, each process was answered at last, and no call got lost
        counted = catalog.calls.counts(run.id)
        assert counted["new"] == 1
        assert counted["hit"] >= PROCESSES
    assert catalog.incidents.list() == []
    catalog.close()


def test_a_run_is_claimed_by_one_worker(fresh: str, round_: int) -> None:
    url = fresh
    catalog = Catalog.open(url)
    queued = {queue(catalog, f"key-{n}").id for n in range(60)}
    claimed = racers.race(racers.claim_all, [(url, 1 + n % 3) for n in range(PROCESSES)])
    assert Counter(id_ for ids in claimed for id_ in ids) == dict.fromkeys(queued, 1)
    catalog.close()


def test_ordinals_have_no_gaps_and_no_doubles(fresh: str, round_: int) -> None:
    url = fresh
    catalog = Catalog.open(url)
    digests = [[an_artifact(f"{n}-{i}", "weights") for i in range(5)] for n in range(PROCESSES)]
    for ref in (ref for refs in digests for ref in refs):
        catalog.artifacts.record(ref)
    ordinals = racers.race(racers.publish_many, [(url, [ref.digest for ref in refs]) for refs in digests])
    assert sorted(n for taken in ordinals for n in taken) == list(range(1, 5 * PROCESSES + 1))
    assert catalog.weights.live("toy-card")["net"].ordinal == 5 * PROCESSES
    catalog.close()


def test_processes_that_start_together_migrate_once(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, round_: int
) -> None:
    if kind == "sqlite":
        url = f"sqlite:///{tmp_path / 'deep' / 'catalog.db'}"
    else:
        url = request.getfixturevalue("databases").create()
    racers.race(racers.migrate, [(url,)] * 4)
    Catalog.open(url).close()
