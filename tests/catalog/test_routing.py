"""Which worker takes which run: weights in memory, room for them, and how long either may delay a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from mutoscope.platform.catalog import Catalog, Member, WorkerInfo, weights_key
from mutoscope.platform.catalog.claiming import HEAD
from tests.support import big, plans
from tests.support.deadline import until
from tests.support.records import CARD, LEASE, SERVES, an_artifact, queue

LONG = 3600.0
"""A patience that no test outlasts."""


def weights(catalog: Catalog, name: str) -> dict[str, str]:
    """Made-up weights of one component."""
    ref = an_artifact(name, "weights")
    catalog.artifacts.record(ref)
    return {"net": ref.digest}


def serve(catalog: Catalog, worker: str, *sets: Mapping[str, str], state: str = "ready") -> list[str]:
    """Register a worker that has those weights in memory; their keys."""
    resident = {str(weights_key(CARD, one)): one for one in sets}
    catalog.workers.register(WorkerInfo(worker, "here", 1, "cpu", {CARD: {"resident": resident}}, state))
    return list(resident)


def take(
    catalog: Catalog, worker: str, resident: Iterable[str] = (), patience: float = LONG, **more: object
) -> list[str]:
    """Claim one run; its id."""
    runs = catalog.runs.claim(
        worker,
        SERVES,
        LEASE,
        resident=resident,
        patience_seconds=patience,
        **more,  # type: ignore[arg-type]
    )
    return [run.id for run in runs]


def test_a_run_says_what_its_weights_are_called_and_how_large_they_are(catalog: Catalog) -> None:
    pinned, shared = weights(catalog, "net"), an_artifact("a shared part", "blob")
    other = an_artifact("other", "weights")
    catalog.artifacts.record_many([shared, other])
    with catalog.bulk() as bulk:
        bulk.members(Member(digest, "part", shared.digest) for digest in (pinned["net"], other.digest))
    both = {**pinned, "head": other.digest}
    run = queue(catalog, weights=both)
    assert run.weights_key == weights_key(CARD, both)
    assert run.weights_bytes == len("net") + len("other") + len("a shared part"), "shared parts count once"
    assert queue(catalog, "again", weights=both).weights_bytes == run.weights_bytes
    bare = queue(catalog, "bare")
    assert (bare.weights_key, bare.weights_bytes) == (None, None)


def test_the_key_names_card_and_weights_together() -> None:
    one = {"net": "a" * 64}
    assert weights_key(CARD, one) == weights_key(CARD, dict(one))
    assert len({weights_key(CARD, one), weights_key("other", one), weights_key(CARD, {"net": "b" * 64})}) == 3
    assert weights_key(CARD, {}) is None


def test_a_young_run_is_left_to_the_worker_that_has_its_weights(catalog: Catalog) -> None:
    old, new = weights(catalog, "old"), weights(catalog, "new")
    warm = serve(catalog, "warm", old)
    serve(catalog, "cold", new)
    first, second = queue(catalog, "1", weights=old), queue(catalog, "2", weights=new)
    assert take(catalog, "cold", serve(catalog, "cold", new)) == [second.id]
    assert take(catalog, "cold", serve(catalog, "cold", new)) == []
    assert take(catalog, "warm", warm) == [first.id]


def test_a_run_that_has_waited_is_taken_by_whoever_is_there(catalog: Catalog) -> None:
    old = weights(catalog, "old")
    serve(catalog, "warm", old)
    run = queue(catalog, weights=old)
    assert take(catalog, "cold") == []
    until(lambda: take(catalog, "cold", patience=0.05) == [run.id], "patience runs out")


@pytest.mark.parametrize("state", ["draining", "stopped"])
def test_nobody_waits_for_a_worker_that_goes(catalog: Catalog, state: str) -> None:
    old = weights(catalog, "old")
    serve(catalog, "going", old, state=state)
    run = queue(catalog, weights=old)
    assert take(catalog, "cold") == [run.id]


def test_weights_that_nobody_has_are_loaded_at_once(catalog: Catalog) -> None:
    serve(catalog, "elsewhere", weights(catalog, "old"))
    run = queue(catalog, weights=weights(catalog, "new"))
    assert take(catalog, "cold") == [run.id]


def test_a_mixed_queue_is_worked_off_in_stretches_of_equal_weights(catalog: Catalog) -> None:
    sets = [weights(catalog, "old"), weights(catalog, "new")]
    ids = [queue(catalog, f"{n}", weights=sets[n % 2]).id for n in range(6)]
    at_home = [str(weights_key(CARD, sets[1]))]
    taken = [take(catalog, "only", at_home)[0] for _ in range(6)]
    assert taken == [ids[1], ids[3], ids[5], ids[0], ids[2], ids[4]]


def test_equal_weights_go_before_older_runs_by_no_more_than_patience(catalog: Catalog) -> None:
    old, new = weights(catalog, "old"), weights(catalog, "new")
    at_home = [str(weights_key(CARD, new))]
    first = queue(catalog, "1", weights=old)

    def younger_by(seconds: float) -> bool:
        last = queue(catalog, weights=new, key=None)
        return last.created_at - first.created_at > seconds

    until(lambda: younger_by(0.05), "a run that is younger by more than patience")
    with catalog._database.write() as connection:  # all but the last one and the first are gone
        connection.exec_driver_sql(
            "update runs set state = 'cancelled' where id not in "
            f"('{first.id}', '{catalog.runs.list(limit=1)[0].id}')"
        )
    assert take(catalog, "only", at_home, patience=0.05) == [first.id]


def test_priority_goes_before_residency(catalog: Catalog) -> None:
    old, new = weights(catalog, "old"), weights(catalog, "new")
    at_home = [str(weights_key(CARD, new))]
    queue(catalog, "1", weights=new)
    urgent = queue(catalog, "2", weights=old, priority=1)
    assert take(catalog, "only", at_home) == [urgent.id]


def test_fairness_goes_before_residency(catalog: Catalog) -> None:
    old, new = weights(catalog, "old"), weights(catalog, "new")
    at_home = [str(weights_key(CARD, new))]
    busy, other = (catalog.workflows.start("test.make", {}) for _ in range(2))
    of_busy = [queue(catalog, f"busy {n}", weights=new, workflow_run_id=busy).id for n in range(2)]
    of_other = [
        queue(catalog, "cold", weights=old, workflow_run_id=other).id,
        queue(catalog, "warm", weights=new, workflow_run_id=other).id,
    ]
    taken = [take(catalog, "only", at_home, busy=[busy])[0] for _ in range(4)]
    assert taken == [of_other[1], of_other[0], *of_busy]


def test_what_does_not_fit_into_memory_is_left_alone(catalog: Catalog) -> None:
    large = queue(catalog, "large", weights=weights(catalog, "a large set"))
    small = queue(catalog, "small", weights=weights(catalog, "small"))
    bare = queue(catalog, "bare")
    room = large.weights_bytes - 1 if large.weights_bytes else 0
    taken = [take(catalog, "modest", memory_bytes=room) for _ in range(3)]
    assert taken == [[bare.id], [small.id], []], "what needs no weights goes first"
    assert take(catalog, "roomy", memory_bytes=large.weights_bytes) == [large.id]


def test_a_worker_that_says_nothing_of_its_memory_is_not_routed_to(catalog: Catalog) -> None:
    old = weights(catalog, "old")
    serve(catalog, "warm", old)
    run = queue(catalog, weights=old)
    assert [one.id for one in catalog.runs.claim("plain", SERVES, LEASE)] == [run.id]


def test_routing_stays_on_the_index_of_the_queue(catalog: Catalog) -> None:
    sets = [weights(catalog, "old"), weights(catalog, "new")]
    busy = catalog.workflows.start("test.make", {})
    for n in range(HEAD + 8):
        queue(catalog, f"{n}", weights=sets[n % 2], workflow_run_id=busy)
    last = queue(catalog, "last", weights=sets[1])
    catalog.queues.limit(CARD, 5)
    catalog.queues.pause("other-card")
    serve(catalog, "elsewhere", weights(catalog, "third"))
    big.finished_runs(catalog, 300)
    plans.analyse(catalog)
    with plans.watched(catalog) as seen:
        at_home = [str(weights_key(CARD, sets[1]))]
        # Behind a head that one workflow run has to itself, under a limit; then without either.
        assert take(catalog, "only", at_home, busy=[busy], memory_bytes=2**40) == [last.id]
        catalog.queues.limit(CARD, None)
        assert len(take(catalog, "only", at_home, memory_bytes=2**40)) == 1
    assert len(seen.scans) >= 8
    assert seen.bad == {}
