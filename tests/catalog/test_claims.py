"""The worker's half of the queue: leases, fencing, retries, cancellation, determinism."""

from __future__ import annotations

import time

import pytest

from mutoscope.platform.catalog import Catalog, RunRecord
from mutoscope.platform.errors import InvalidParameter, LeaseLost
from mutoscope.platform.ids import sha256
from tests.support.deadline import until
from tests.support.records import (
    CARD,
    CODE,
    CONTRACT,
    LEASE,
    SERVES,
    a_spec,
    an_artifact,
    claim,
    make,
    present,
    queue,
)

IMAGE = an_artifact("image")
OTHER = an_artifact("other")
ERROR = {"type": "RuntimeError", "message": "out of memory"}


def expire_into(catalog: Catalog, worker: str) -> RunRecord:
    """Wait until the one running run's lease has run out and `worker` has it."""
    return until(
        lambda: next(iter(catalog.runs.claim(worker, SERVES, LEASE)), None), "an expired lease is taken over"
    )


def test_a_claim_is_a_lease(catalog: Catalog) -> None:
    queued = queue(catalog)
    run = claim(catalog, "worker-a")
    assert (run.id, run.state, run.worker, run.attempt) == (queued.id, "running", "worker-a", 1)
    assert run.started_at is not None
    assert run.lease_expires_at is not None
    # Both from the database's clock, within one statement or two.
    assert abs(run.lease_expires_at - run.started_at - LEASE) < 1
    assert catalog.runs.claim("worker-b", SERVES, LEASE) == []


def test_the_order_is_priority_then_age(catalog: Catalog) -> None:
    keys = {queue(catalog, key, priority=p).id: key for key, p in [("a", 0), ("b", 5), ("c", 0), ("d", 5)]}
    first = catalog.runs.claim("worker-a", SERVES, LEASE, limit=3)
    rest = catalog.runs.claim("worker-b", SERVES, LEASE, limit=3)
    assert [keys[run.id] for run in first] == ["b", "d", "a"]
    assert [keys[run.id] for run in rest] == ["c"]


@pytest.mark.parametrize(
    ("cards", "digests", "served"),
    [
        ({CARD: CONTRACT}, None, True),
        ({CARD: CONTRACT}, {CARD: CODE}, True),
        ({CARD: CONTRACT}, {"another": CODE}, True),
        ({CARD: CONTRACT, "another": CONTRACT}, None, True),
        ({CARD: sha256(b"other contract")}, None, False),
        ({"another": CONTRACT}, None, False),
        ({CARD: CONTRACT}, {CARD: sha256(b"other code")}, False),
        ({}, None, False),
    ],
)
def test_a_worker_takes_only_what_it_makes_under_the_same_key(
    catalog: Catalog, cards: dict[str, str], digests: dict[str, str] | None, served: bool
) -> None:
    queue(catalog)
    assert bool(catalog.runs.claim("worker-a", cards, LEASE, card_digests=digests)) is served


def test_limits_and_leases_are_checked(catalog: Catalog) -> None:
    queue(catalog)
    assert catalog.runs.claim("worker-a", SERVES, LEASE, limit=0) == []
    with pytest.raises(InvalidParameter, match="lease_seconds"):
        catalog.runs.claim("worker-a", SERVES, 0)


def test_an_expired_lease_is_taken_over_and_its_old_owner_fenced_off(catalog: Catalog) -> None:
    run = queue(catalog)
    claim(catalog, "worker-a", lease=0.001)
    taken = expire_into(catalog, "worker-b")
    assert (taken.id, taken.worker, taken.attempt) == (run.id, "worker-b", 2)

    assert catalog.runs.renew("worker-a", [run.id], LEASE).lost == {run.id}
    assert catalog.runs.progress(run.id, "worker-a", "denoise", 1, 4) == "lost"
    for late in (
        lambda: catalog.runs.succeed(run.id, "worker-a", {"image": OTHER}),
        lambda: catalog.runs.fail(run.id, "worker-a", ERROR),
        lambda: catalog.runs.release(run.id, "worker-a"),
        lambda: catalog.runs.release(run.id, "worker-a"),
    ):
        with pytest.raises(LeaseLost, match="does not belong to worker worker-a"):
            late()
    assert catalog.runs.get(run.id) == taken
    assert catalog.artifacts.get(OTHER.digest) is None, "a late result leaves no row"

    catalog.runs.succeed(run.id, "worker-b", {"image": IMAGE})
    with pytest.raises(LeaseLost):
        catalog.runs.succeed(run.id, "worker-b", {"image": IMAGE})


def test_a_worker_does_not_take_its_own_run_twice(catalog: Catalog) -> None:
    run = queue(catalog)
    claim(catalog, "worker-a", lease=0.001)
    expired = catalog.runs.get(run.id).lease_expires_at
    assert expired is not None
    # Any other run queued and claimed later shows the clock has passed the expiry.
    until(lambda: queue_and_drop(catalog).started_at > expired, "the lease has run out")
    assert catalog.runs.claim("worker-a", SERVES, LEASE) == []
    assert catalog.runs.renew("worker-a", [run.id], LEASE).lost == frozenset()
    assert catalog.runs.claim("worker-b", SERVES, LEASE) == [], "renewed late is renewed"


def queue_and_drop(catalog: Catalog) -> RunRecord:
    other = queue(catalog, None, card="clock", contract=CONTRACT)
    (run,) = catalog.runs.claim("clock", {"clock": CONTRACT}, LEASE)
    assert run.id == other.id
    return run


def test_renewing_keeps_a_lease_and_tells_what_to_stop(catalog: Catalog) -> None:
    keep, stop = queue(catalog, "keep"), queue(catalog, "stop")
    catalog.runs.claim("worker-a", SERVES, 0.5, limit=2)
    catalog.runs.request_cancel(stop.id)
    renewed = catalog.runs.renew("worker-a", [keep.id, stop.id, "unheard-of"], LEASE)
    assert (renewed.lost, renewed.cancelled) == ({"unheard-of"}, {stop.id})
    lease = catalog.runs.get(keep.id).lease_expires_at
    assert lease is not None
    assert lease > (catalog.runs.get(keep.id).started_at or 0) + LEASE - 1
    assert catalog.runs.renew("worker-a", [], LEASE).lost == frozenset()


def test_attempts_run_out(catalog: Catalog) -> None:
    run = queue(catalog, max_attempts=2)
    claim(catalog, "worker-a", lease=0.001)
    assert expire_into(catalog, "worker-b").attempt == 2
    catalog.runs.renew("worker-b", [run.id], 0.001)

    def given_up() -> RunRecord | None:
        assert catalog.runs.claim("worker-c", SERVES, LEASE) == []
        found = catalog.runs.get(run.id)
        return found if found.state == "failed" else None

    failed = until(given_up, "the run is given up")
    assert failed.error is not None
    assert failed.error["type"] == "LeaseExpired"
    assert "worker-b went silent in attempt 2" in failed.error["message"]
    assert failed.finished_at is not None


def test_a_failure_is_retried_while_attempts_are_left(catalog: Catalog) -> None:
    run = queue(catalog, max_attempts=2)
    claim(catalog)
    again = catalog.runs.fail(run.id, "worker-a", ERROR, retry=True)
    assert (again.state, again.worker, again.error, again.attempt) == ("queued", None, ERROR, 1)
    assert claim(catalog, "worker-b").attempt == 2
    final = catalog.runs.fail(run.id, "worker-b", ERROR, retry=True)
    assert (final.state, final.error) == ("failed", ERROR)
    assert catalog.runs.claim("worker-c", SERVES, LEASE) == []


def test_a_failure_that_would_repeat_is_final(catalog: Catalog) -> None:
    run = queue(catalog)
    claim(catalog)
    assert catalog.runs.fail(run.id, "worker-a", ERROR).state == "failed"
    assert catalog.runs.get(run.id).attempt == 1


def test_a_success_after_a_retry_clears_the_error(catalog: Catalog) -> None:
    run = queue(catalog)
    claim(catalog)
    catalog.runs.fail(run.id, "worker-a", ERROR, retry=True)
    claim(catalog, "worker-b")
    done = catalog.runs.succeed(run.id, "worker-b", {"image": IMAGE}, {"decode": 0.25})
    assert (done.state, done.error, done.timings, done.worker) == (
        "succeeded",
        None,
        {"decode": 0.25},
        "worker-b",
    )
    assert catalog.runs.outputs(run.id) == {"image": IMAGE}


def test_a_run_handed_back_has_lost_no_attempt(catalog: Catalog) -> None:
    run = queue(catalog, max_attempts=1)
    claim(catalog)
    catalog.runs.progress(run.id, "worker-a", "denoise", 2, 4)
    back = catalog.runs.release(run.id, "worker-a")
    assert (back.state, back.attempt, back.worker, back.step) == ("queued", 0, None, None)
    assert claim(catalog, "worker-b").attempt == 1


def test_progress_is_seen(catalog: Catalog) -> None:
    run = queue(catalog)
    claim(catalog)
    assert catalog.runs.progress(run.id, "worker-a", "denoise", 2, 4) == "kept"
    seen = catalog.runs.get(run.id)
    assert (seen.stage, seen.step, seen.total) == ("denoise", 2, 4)
    catalog.runs.request_cancel(run.id)
    assert catalog.runs.progress(run.id, "worker-a", "denoise", 3, 4) == "cancel"


def test_a_running_run_is_cancelled_by_its_worker(catalog: Catalog) -> None:
    run = queue(catalog)
    claim(catalog)
    assert catalog.runs.request_cancel(run.id).state == "running"
    assert catalog.runs.renew("worker-a", [run.id], LEASE).cancelled == {run.id}
    assert catalog.runs.release(run.id, "worker-a").state == "cancelled"


@pytest.mark.parametrize("report", ["fail", "release"])
def test_whatever_a_worker_says_of_a_cancelled_run_ends_it(catalog: Catalog, report: str) -> None:
    run = queue(catalog)
    claim(catalog)
    catalog.runs.request_cancel(run.id)
    if report == "fail":
        ended = catalog.runs.fail(run.id, "worker-a", ERROR, retry=True)
    else:
        ended = catalog.runs.release(run.id, "worker-a")
    assert ended.state == "cancelled"


def test_a_cancelled_run_of_a_dead_worker_is_not_started_again(catalog: Catalog) -> None:
    run = queue(catalog)
    claim(catalog, "worker-a", lease=0.001)
    catalog.runs.request_cancel(run.id)

    def settled() -> bool:
        assert catalog.runs.claim("worker-b", SERVES, LEASE) == []
        return catalog.runs.get(run.id).state == "cancelled"

    until(settled, "the run is cancelled")


def test_nobody_gets_a_cancellation_that_somebody_else_asked_for(catalog: Catalog) -> None:
    run = queue(catalog)
    claim(catalog)
    catalog.runs.request_cancel(run.id)
    # A second caller wants the same output before the worker has noticed.
    assert catalog.runs.enqueue(a_spec(), present=present).disposition == "attached"
    assert catalog.runs.renew("worker-a", [run.id], LEASE).cancelled == frozenset()
    # And even if it had noticed, its report puts the run back into the queue.
    back = catalog.runs.release(run.id, "worker-a")
    assert (back.state, back.attempt) == ("queued", 0)
    assert claim(catalog, "worker-b").id == run.id


def test_other_bytes_under_an_equal_key_are_an_incident(catalog: Catalog) -> None:
    first = make(catalog, "key", {"image": IMAGE})
    same = make(catalog, "key", {"image": IMAGE})
    assert catalog.incidents.list() == []
    other = make(catalog, "key", {"image": OTHER})
    (incident,) = catalog.incidents.list()
    assert (incident.kind, incident.run_id, incident.earlier_run_id) == ("determinism", other.id, first.id)
    assert incident.memo_key == first.memo_key
    assert incident.details == {"earlier": {"image": IMAGE.digest}, "now": {"image": OTHER.digest}}
    # Nothing was overwritten: every run keeps what it made, and the key answers what it answered first.
    assert [catalog.runs.outputs(r.id)["image"] for r in (first, same, other)] == [IMAGE, IMAGE, OTHER]
    assert catalog.runs.enqueue(a_spec(), present=present).run.id == first.id


def test_runs_without_a_key_have_no_incidents(catalog: Catalog) -> None:
    for image in (IMAGE, OTHER):
        run = queue(catalog, None)
        claim(catalog)
        catalog.runs.succeed(run.id, "worker-a", {"image": image})
    assert catalog.incidents.list() == []


def test_a_silent_workers_run_is_left_alone_by_who_does_not_trust_the_silence(catalog: Catalog) -> None:
    silent = queue(catalog)
    claim(catalog, "worker-a", lease=0.001)
    until(lambda: catalog.runs.get(silent.id).lease_expires_at < time.time(), "the lease to run out")  # type: ignore[operator]
    fresh = queue(catalog, "fresh")
    taken = catalog.runs.claim("worker-b", SERVES, LEASE, 10, expired=False)
    assert [run.id for run in taken] == [fresh.id]
    assert expire_into(catalog, "worker-b").id == silent.id
