"""What an operator says about a card's runs is obeyed by whoever claims."""

from __future__ import annotations

import pytest

from mutoscope.platform.catalog import Catalog
from mutoscope.platform.errors import InvalidParameter
from tests.support.deadline import until
from tests.support.records import CARD, CONTRACT, LEASE, SERVES, an_artifact, claim, queue

OTHER = "other-card"
BOTH = {**SERVES, OTHER: CONTRACT}


def claimed(catalog: Catalog, worker: str = "worker-a", limit: int = 10) -> list[str]:
    return [run.id for run in catalog.runs.claim(worker, BOTH, LEASE, limit)]


def test_a_paused_card_waits_and_others_do_not(catalog: Catalog) -> None:
    held, free = queue(catalog, "held"), queue(catalog, "free", card=OTHER)
    paused = catalog.queues.pause(CARD, "bad weights")
    assert (paused.card, paused.paused, paused.note) == (CARD, True, "bad weights")
    assert claimed(catalog) == [free.id]
    assert catalog.queues.list() == [paused]
    resumed = catalog.queues.resume(CARD)
    assert (resumed.paused, resumed.note) == (False, None)
    assert claimed(catalog) == [held.id]


def test_what_runs_goes_on_when_its_card_is_paused(catalog: Catalog) -> None:
    run = queue(catalog)
    claim(catalog)
    catalog.queues.pause(CARD)
    assert catalog.runs.renew("worker-a", [run.id], LEASE).lost == frozenset()
    assert catalog.runs.succeed(run.id, "worker-a", {"image": an_artifact("image")}).state == "succeeded"


def test_a_limit_counts_the_runs_of_all_workers(catalog: Catalog) -> None:
    ids = [queue(catalog, f"key {n}").id for n in range(4)]
    other = queue(catalog, "other", card=OTHER)
    catalog.queues.limit(CARD, 2)
    assert claimed(catalog, "worker-a", 1) == ids[:1]
    assert claimed(catalog, "worker-b") == [ids[1], other.id], "the limit is of one card"
    assert claimed(catalog, "worker-b") == []
    catalog.runs.succeed(ids[0], "worker-a", {"image": an_artifact("image")})
    assert claimed(catalog, "worker-b") == ids[2:3]
    catalog.queues.limit(CARD, None)
    assert claimed(catalog, "worker-b") == ids[3:]


def test_a_limit_and_a_pause_are_kept_apart(catalog: Catalog) -> None:
    catalog.queues.limit(CARD, 1)
    paused = catalog.queues.pause(CARD)
    assert (paused.most_running, paused.paused) == (1, True)
    assert catalog.queues.limit(CARD, 0).paused
    queue(catalog)
    assert catalog.queues.resume(CARD).most_running == 0
    assert claimed(catalog) == [], "none at a time is none"


def test_a_run_whose_worker_died_changes_hands_at_the_limit(catalog: Catalog) -> None:
    run = queue(catalog)
    catalog.queues.limit(CARD, 1)
    assert catalog.runs.claim("worker-a", SERVES, 0.01)
    waiting = queue(catalog, "waiting")
    until(lambda: claimed(catalog, "worker-b") == [run.id], "the run is taken over")
    assert claimed(catalog, "worker-c") == []
    catalog.runs.succeed(run.id, "worker-b", {"image": an_artifact("image")})
    assert claimed(catalog, "worker-c") == [waiting.id]


def test_a_run_that_is_given_up_leaves_its_place_to_the_next(catalog: Catalog) -> None:
    poisonous, next_one = queue(catalog, max_attempts=1), queue(catalog, "next")
    catalog.queues.limit(CARD, 1)
    assert catalog.runs.claim("worker-a", SERVES, 0.01)
    until(lambda: claimed(catalog, "worker-b") == [next_one.id], "the place is free")
    assert catalog.runs.get(poisonous.id).state == "failed"


def test_a_negative_limit_is_refused(catalog: Catalog) -> None:
    with pytest.raises(InvalidParameter, match="most_running"):
        catalog.queues.limit(CARD, -1)
    assert catalog.queues.list() == []
