"""Attempts that did not succeed stay on record, in the transaction that ended them."""

from __future__ import annotations

import pytest

from mutoscope.platform.catalog import Catalog
from mutoscope.platform.errors import LeaseLost
from tests.support.deadline import until
from tests.support.records import LEASE, SERVES, an_artifact, claim, queue

OOPS = {"type": "RuntimeError", "message": "out of memory"}
LATE = {"type": "TimeoutError", "message": "longer than 2 s"}


def outcomes(catalog: Catalog, run_id: str) -> list[tuple[int, str, str]]:
    return [(one.attempt, one.worker, one.outcome) for one in catalog.runs.attempts(run_id)]


def test_every_attempt_that_failed_is_told_with_its_worker_and_its_error(catalog: Catalog) -> None:
    run = queue(catalog, max_attempts=3)
    for worker, error, outcome in (("worker-a", OOPS, "failed"), ("worker-b", LATE, "timed_out")):
        claim(catalog, worker)
        catalog.runs.fail(run.id, worker, error, retry=True, outcome=outcome)  # type: ignore[arg-type]
    claim(catalog, "worker-c")
    catalog.runs.succeed(run.id, "worker-c", {"image": an_artifact("image")})
    first, second = catalog.runs.attempts(run.id)
    assert (first.attempt, first.worker, first.outcome, first.error) == (1, "worker-a", "failed", OOPS)
    assert (second.attempt, second.worker, second.outcome, second.error) == (2, "worker-b", "timed_out", LATE)
    assert first.started_at <= first.ended_at <= second.started_at
    assert catalog.runs.get(run.id).attempt == 3, "a success is in the run itself"


def test_a_run_that_was_handed_back_keeps_its_attempts(catalog: Catalog) -> None:
    run = queue(catalog, max_attempts=1)
    for worker in ("worker-a", "worker-b"):
        claim(catalog, worker)
        catalog.runs.release(run.id, worker)
    claim(catalog, "worker-c")
    catalog.runs.request_cancel(run.id)
    catalog.runs.release(run.id, "worker-c")
    assert outcomes(catalog, run.id) == [
        (1, "worker-a", "released"),
        (1, "worker-b", "released"),
        (1, "worker-c", "cancelled"),
    ]


def test_a_poisonous_run_ends_with_the_record_of_each_worker_it_took_down(catalog: Catalog) -> None:
    run = queue(catalog, max_attempts=2)
    for worker in ("worker-a", "worker-b"):
        until(lambda w=worker: catalog.runs.claim(w, SERVES, 0.01), f"{worker} takes the run")  # type: ignore[misc]

    def given_up() -> bool:
        assert catalog.runs.claim("worker-c", SERVES, LEASE) == []
        return catalog.runs.get(run.id).state == "failed"

    until(given_up, "the run is given up")
    assert outcomes(catalog, run.id) == [(1, "worker-a", "expired"), (2, "worker-b", "expired")]
    assert "worker-b went silent in attempt 2, the last" in (catalog.runs.get(run.id).error or {})["message"]
    first, _ = catalog.runs.attempts(run.id)
    assert (first.error or {})["message"] == "its worker worker-a went silent in attempt 1"


def test_a_report_that_comes_too_late_leaves_no_attempt(catalog: Catalog) -> None:
    run = queue(catalog)
    claim(catalog, "worker-a")
    with pytest.raises(LeaseLost):
        catalog.runs.fail(run.id, "worker-b", OOPS)
    assert catalog.runs.attempts(run.id) == []
