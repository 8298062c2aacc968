"""Who executes a workflow run: one process at a time, missed when it is silent, stopped with all below it."""

from __future__ import annotations

import pytest

from mutoscope.platform.catalog import Catalog, Enqueued, WorkflowRecord
from mutoscope.platform.errors import CatalogUnavailable, InvalidParameter, LeaseLost
from tests.support.records import LEASE, a_spec, absent, claim, queue

OVER = -1.0
"""Seconds of a lease that has run out when it is written."""
LINE = {"type": "ProcessDied", "message": "its process went silent"}
FLOW_RUN = "0198c0de-0000-7000-8000-000000000001"


def start(catalog: Catalog, lease: float = LEASE, holder: str = "here:1", **more: object) -> str:
    options: dict[str, object] = {"prefect_flow_run_id": FLOW_RUN, "max_attempts": 3, **more}
    return catalog.workflows.start(
        "test.make",
        {"seed": 7},
        holder=holder,
        lease_seconds=lease,
        **options,  # type: ignore[arg-type]
    )


def call(catalog: Catalog, key: str, workflow_run: str | None) -> Enqueued:
    return catalog.runs.enqueue(a_spec(key, workflow_run_id=workflow_run), present=absent)


def crash(catalog: Catalog, run_id: str, **more: bool) -> WorkflowRecord:
    record = catalog.workflows.take_expired(run_id, LINE, **more)
    assert record is not None
    return record


def test_a_lease_is_renewed_by_its_holder_alone(catalog: Catalog) -> None:
    mine, other = start(catalog), start(catalog, holder="there:2", prefect_flow_run_id=None)
    renewed = catalog.workflows.renew([mine, other], "here:1", LEASE)
    assert (renewed.lost, renewed.cancelled) == ({other}, frozenset())
    catalog.workflows.finish(mine, "succeeded", holder="here:1")
    assert catalog.workflows.renew([mine], "here:1", LEASE).lost == {mine}
    assert catalog.workflows.renew([], "here:1", LEASE).lost == frozenset()


def test_of_several_who_find_a_silent_one_one_declares_it_crashed(catalog: Catalog) -> None:
    silent, kept = start(catalog, OVER), start(catalog, prefect_flow_run_id=None)
    unwatched = catalog.workflows.start("test.make", {})
    assert [row.id for row in catalog.workflows.expired()] == [silent]
    record = crash(catalog, silent)
    assert (record.state, record.error, record.lease_expires_at) == ("crashed", LINE, None)
    assert record.finished_at is not None
    assert [catalog.workflows.take_expired(one, LINE) for one in (silent, kept, unwatched)] == [None] * 3
    assert catalog.workflows.expired() == []


def test_a_holder_that_was_merely_slow_takes_its_run_back(catalog: Catalog) -> None:
    slow = start(catalog, OVER)
    crash(catalog, slow)
    assert not catalog.workflows.reclaim(slow, "there:2", LEASE)
    assert catalog.workflows.reclaim(slow, "here:1", LEASE)
    assert catalog.workflows.get(slow).state == "running"
    assert catalog.workflows.renew([slow], "here:1", LEASE).lost == frozenset()


def test_the_next_attempt_opens_the_same_row_and_shuts_out_the_one_before(catalog: Catalog) -> None:
    first = start(catalog, OVER, prefect_deployment="make")
    crash(catalog, first)
    assert [row.id for row in catalog.workflows.restartable()] == [first]
    again = catalog.workflows.start(
        "test.make", {"seed": 99}, None, FLOW_RUN, holder="there:2", lease_seconds=LEASE
    )
    record = catalog.workflows.get(first)
    assert again == first
    assert (record.attempt, record.state, record.holder) == (2, "running", "there:2")
    assert record.parameters == {"seed": 7}, "what was drawn stays drawn"
    assert record.finished_at is None
    assert catalog.workflows.renew([first], "here:1", LEASE).lost == {first}
    assert not catalog.workflows.reclaim(first, "here:1", LEASE)
    with pytest.raises(LeaseLost, match="there:2"):
        catalog.workflows.finish(first, "failed", error=LINE, holder="here:1")
    assert catalog.workflows.get(first).state == "running"
    assert catalog.workflows.restartable() == []


def test_a_flow_run_whose_process_lives_is_not_executed_twice(catalog: Catalog) -> None:
    start(catalog)
    with pytest.raises(LeaseLost, match="here:1"):
        start(catalog, holder="there:2")


def test_what_cannot_start_again_is_not_offered(catalog: Catalog) -> None:
    plain = start(catalog, OVER, prefect_flow_run_id=None)
    spent = start(catalog, OVER, prefect_flow_run_id=None, prefect_deployment="make", max_attempts=1)
    unwanted = start(catalog, OVER, prefect_flow_run_id=None, prefect_deployment="make")
    catalog.workflows.request_cancel(unwanted)
    records = [crash(catalog, one) for one in (plain, spent, unwanted)]
    assert not any(record.may_start_again for record in records)
    assert catalog.workflows.restartable() == []


def test_a_suspended_run_is_not_missed(catalog: Catalog) -> None:
    parked = start(catalog, OVER)
    catalog.workflows.park(parked)
    assert catalog.workflows.expired() == []
    assert catalog.workflows.get(parked).state == "running"


def test_a_run_that_is_handed_back_is_missed_at_once_and_keeps_its_attempts(catalog: Catalog) -> None:
    ours = start(catalog)
    catalog.workflows.hand_back(ours, "there:2")
    assert catalog.workflows.get(ours).attempt == 1
    catalog.workflows.hand_back(ours, "here:1")
    record = catalog.workflows.get(ours)
    assert (record.attempt, record.state) == (0, "running")
    assert record.lease_expires_at is not None
    assert catalog.workflows.renew([ours], "here:1", OVER).lost == frozenset()
    assert [row.id for row in catalog.workflows.expired()] == [ours]


def test_a_cancellation_reaches_all_below_and_lets_go_of_their_runs(catalog: Catalog) -> None:
    root = start(catalog)
    child = start(catalog, parent_id=root, prefect_flow_run_id=None)
    grandchild = start(catalog, parent_id=child, prefect_flow_run_id=None)
    ended = start(catalog, parent_id=root, prefect_flow_run_id=None)
    stranger = start(catalog, prefect_flow_run_id=None)
    catalog.workflows.finish(ended, "succeeded")
    mine, shared, theirs = (
        call(catalog, "1", grandchild),
        call(catalog, "2", root),
        call(catalog, "3", stranger),
    )
    call(catalog, "2", stranger)
    running = queue(catalog, "0", workflow_run_id=child, priority=9)
    (taken,) = catalog.runs.claim("worker-a", {running.card or "": running.contract or ""}, LEASE)
    assert taken.id == running.id

    assert catalog.workflows.request_cancel(root) == [root, child, grandchild]
    assert catalog.runs.get(mine.run.id).state == "cancelled"
    assert (catalog.runs.get(shared.run.id).state, catalog.runs.get(shared.run.id).waiters) == ("queued", 1)
    assert catalog.runs.get(theirs.run.id).state == "queued"
    assert catalog.runs.renew("worker-a", [running.id], LEASE).cancelled == {running.id}
    assert catalog.workflows.renew([root, child, grandchild, stranger], "here:1", LEASE).cancelled == {
        root,
        child,
        grandchild,
    }
    late = start(catalog, parent_id=root, prefect_flow_run_id=None)
    assert catalog.workflows.get(late).cancel_requested, "what starts below it meanwhile is to stop too"
    assert catalog.workflows.request_cancel(ended) == []


def test_a_caller_leaves_once_whoever_says_so(catalog: Catalog) -> None:
    root = start(catalog)
    ours = call(catalog, "1", root)
    theirs = call(catalog, "1", None)
    assert (theirs.disposition, theirs.run.id) == ("attached", ours.run.id)
    catalog.workflows.request_cancel(root)
    for _ in range(2):  # its process, which learns of the cancellation, says so too
        catalog.runs.withdraw(ours.call)
    run = catalog.runs.get(ours.run.id)
    assert (run.state, run.waiters, run.cancel_requested) == ("queued", 1, False)
    left, stays = catalog.calls.of_run(run.id)
    assert (left.left_at is not None, stays.left_at) == (True, None)
    catalog.runs.withdraw(theirs.call)
    assert catalog.runs.get(run.id).state == "cancelled"


def test_runs_of_a_dead_attempt_go_on_for_the_next_one(catalog: Catalog) -> None:
    dead = start(catalog, OVER, prefect_deployment="make")
    run = call(catalog, "1", dead).run
    crash(catalog, dead)
    assert (catalog.runs.get(run.id).state, catalog.runs.get(run.id).waiters) == ("queued", 0)
    start(catalog, holder="there:2")
    again = call(catalog, "1", dead)
    assert (again.disposition, again.run.id, again.run.waiters) == ("attached", run.id, 1)
    catalog.workflows.abandon(dead, cancel=False)
    assert claim(catalog).id == run.id, "it still goes on"
    catalog.workflows.abandon(dead, cancel=True)
    assert not catalog.runs.get(run.id).cancel_requested, "nobody is left to leave"


def test_runs_of_a_dead_attempt_that_is_not_wanted_stop(catalog: Catalog) -> None:
    dead = start(catalog, OVER)
    queued, hit = call(catalog, "1", dead).run, call(catalog, "2", dead)
    (first, _) = catalog.runs.claim("worker-a", {queued.card or "": queued.contract or ""}, LEASE, 2)
    catalog.workflows.abandon(dead, cancel=True)
    states = {one.id: one.cancel_requested for one in map(catalog.runs.get, (queued.id, hit.run.id))}
    assert states == {queued.id: True, hit.run.id: True}
    assert first.id in states


def test_a_holder_without_a_lease_is_refused(catalog: Catalog) -> None:
    with pytest.raises(InvalidParameter, match="lease_seconds"):
        catalog.workflows.start("test.make", {}, holder="here:1")


def test_rows_are_found_by_their_flow_runs(catalog: Catalog) -> None:
    ours = start(catalog)
    start(catalog, prefect_flow_run_id=None)
    found = catalog.workflows.of_flow_runs([FLOW_RUN, "0198c0de-0000-7000-8000-00000000ffff"])
    assert {key: row.id for key, row in found.items()} == {FLOW_RUN: ours}


def test_a_process_that_was_succeeded_queues_nothing_more(catalog: Catalog) -> None:
    run_id = start(catalog)

    def queue_as(holder: str, key: str) -> Enqueued:
        spec = a_spec(key, workflow_run_id=run_id)
        return catalog.runs.enqueue(spec, present=absent, held=(run_id, holder))

    assert queue_as("here:1", "a").disposition == "new"
    catalog.workflows.take_expired(run_id, LINE)
    assert queue_as("here:1", "b").disposition == "new", "its lease has not run out"
    assert catalog.workflows.renew([run_id], "here:1", OVER).lost == frozenset()
    crash(catalog, run_id)
    with pytest.raises(CatalogUnavailable, match="another process"):
        queue_as("here:1", "c")
    assert start(catalog, holder="there:2") == run_id
    for key in ("a", "d"):
        with pytest.raises(CatalogUnavailable, match="not held by here:1"):
            queue_as("here:1", key)
    assert len(catalog.runs.list()) == 2
    assert queue_as("there:2", "a").disposition == "attached"
    unwatched = catalog.workflows.start("test.make", {})
    spec = a_spec("e", workflow_run_id=unwatched)
    assert catalog.runs.enqueue(spec, present=absent, held=(unwatched, "here:1")).disposition == "new"
