"""Leases of workflow runs: kept by a thread, and how an execution is stopped."""

from __future__ import annotations

import asyncio
import threading

import pytest

from mutoscope.platform.errors import LeaseLost
from mutoscope.platform.orchestration.liveness import Hold, Liveness, Stopped, holder
from mutoscope.platform.orchestration.runtime import Runtime
from tests.support.deadline import until

EXPIRED = -1.0
LONG = 3600.0


def opened(runtime: Runtime, flow_run: str, lease: float = LONG, by: str | None = None) -> str:
    return runtime.catalog.workflows.start(
        "test.held", {"seed": 7}, None, flow_run, holder=by or holder(), lease_seconds=lease, max_attempts=3
    )


async def stopped(hold: Hold, beginning: asyncio.Event) -> str:
    """Why work that never ends was stopped."""

    async def work() -> None:
        beginning.set()
        await asyncio.Event().wait()

    with pytest.raises(Stopped) as raised:
        await hold.run(work())
    return raised.value.reason


async def test_a_lease_that_nobody_renews_runs_out_and_a_kept_one_does_not(runtime: Runtime) -> None:
    kept, left = opened(runtime, "a", lease=EXPIRED), opened(runtime, "b", lease=EXPIRED)
    liveness = Liveness()
    with liveness.keeping(runtime, Hold(kept)):
        liveness.beat()
    assert [row.id for row in runtime.catalog.workflows.expired()] == [left]


async def test_a_cancellation_from_anywhere_stops_the_outermost_execution(runtime: Runtime) -> None:
    outer_id = opened(runtime, "a")
    inner_id = runtime.catalog.workflows.start(
        "test.inner", {}, outer_id, "b", holder=holder(), lease_seconds=LONG
    )
    liveness, begun = Liveness(), asyncio.Event()
    outer = Hold(outer_id)
    inner = Hold(inner_id, outer)
    cut_short: list[str] = []

    async def inside() -> None:
        try:
            await stopped(inner, begun)
        except asyncio.CancelledError:
            cut_short.append("inner")
            raise

    with liveness.keeping(runtime, outer), liveness.keeping(runtime, inner):
        task = asyncio.ensure_future(outer.run(inside()))
        await begun.wait()
        assert set(runtime.catalog.workflows.request_cancel(outer_id)) == {outer_id, inner_id}
        await asyncio.to_thread(liveness.beat)
        with pytest.raises(Stopped) as raised:
            await task
    assert raised.value.reason == "cancelled"
    assert cut_short == ["inner"], "cut short by the one around it, not told by itself"


async def test_whoever_was_taken_over_stops_and_cannot_close_the_row(runtime: Runtime) -> None:
    run_id = opened(runtime, "a", lease=EXPIRED)
    liveness, begun = Liveness(), asyncio.Event()
    hold = Hold(run_id)
    with liveness.keeping(runtime, hold):
        task = asyncio.ensure_future(stopped(hold, begun))
        await begun.wait()
        assert runtime.catalog.workflows.take_expired(run_id, {"message": "silent"}) is not None
        assert opened(runtime, "a", by="elsewhere:1") == run_id
        await asyncio.to_thread(liveness.beat)
        assert await task == "lost"
    with pytest.raises(LeaseLost, match="was started again by elsewhere:1"):
        runtime.catalog.workflows.finish(run_id, "succeeded", holder=holder())
    row = runtime.catalog.workflows.get(run_id)
    assert (row.state, row.attempt, row.holder) == ("running", 2, "elsewhere:1")


async def test_what_lies_within_a_run_that_was_taken_over_is_not_taken_back(runtime: Runtime) -> None:
    outer_id = opened(runtime, "a", lease=EXPIRED)
    inner_id = opened(runtime, "b", lease=EXPIRED)
    for run_id in (outer_id, inner_id):
        assert runtime.catalog.workflows.take_expired(run_id, {"message": "silent"}) is not None
    assert opened(runtime, "a", by="elsewhere:1") == outer_id
    liveness = Liveness()
    outer = Hold(outer_id)
    inner = Hold(inner_id, outer)
    assert inner.outermost is outer
    with liveness.keeping(runtime, outer), liveness.keeping(runtime, inner):
        await asyncio.to_thread(liveness.beat)
    assert runtime.catalog.workflows.get(inner_id).state == "crashed"


async def test_whoever_was_declared_dead_by_mistake_goes_on(runtime: Runtime) -> None:
    run_id = opened(runtime, "a", lease=EXPIRED)
    assert runtime.catalog.workflows.take_expired(run_id, {"message": "silent"}) is not None
    liveness = Liveness()
    with liveness.keeping(runtime, Hold(run_id)):
        await asyncio.to_thread(liveness.beat)
    row = runtime.catalog.workflows.get(run_id)
    assert (row.state, row.attempt, row.error) == ("running", 1, None)


def test_a_second_process_of_one_flow_run_is_refused_while_the_first_lives(runtime: Runtime) -> None:
    run_id = opened(runtime, "a", by="one:1")
    with pytest.raises(LeaseLost, match="is executed by one:1: a second process must leave it alone"):
        opened(runtime, "a", by="two:2")
    assert opened(runtime, "a", by="one:1") == run_id, "its own start, said again"
    assert runtime.catalog.workflows.get(run_id).attempt == 1


def test_a_suspended_run_is_missed_by_nobody_and_taken_up_as_the_same_attempt(runtime: Runtime) -> None:
    run_id = opened(runtime, "a", lease=EXPIRED, by="one:1")
    runtime.catalog.workflows.park(run_id)
    assert runtime.catalog.workflows.expired() == []
    assert opened(runtime, "a", by="two:2") == run_id
    row = runtime.catalog.workflows.get(run_id)
    assert (row.attempt, row.holder, row.parameters) == (1, "two:2", {"seed": 7})


def test_a_run_that_is_handed_back_is_found_at_once_and_keeps_its_attempts(runtime: Runtime) -> None:
    run_id = opened(runtime, "a", by="one:1")
    runtime.catalog.workflows.hand_back(run_id, "two:2")
    assert runtime.catalog.workflows.expired() == [], "only its holder hands it back"
    runtime.catalog.workflows.hand_back(run_id, "one:1")
    until(runtime.catalog.workflows.expired, "its lease has run out")
    assert opened(runtime, "a", by="two:2") == run_id
    assert runtime.catalog.workflows.get(run_id).attempt == 1


async def test_work_beyond_its_limit_is_stopped(runtime: Runtime) -> None:
    hold = Hold(opened(runtime, "a"))

    async def work() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Stopped, match="overdue"):
        await hold.run(work(), seconds=0.01)
    assert await Hold("b").run(asyncio.sleep(0, "done"), seconds=LONG) == "done"


async def test_what_ended_by_itself_is_not_stopped_any_more(runtime: Runtime) -> None:
    hold = Hold(opened(runtime, "a"))
    assert await hold.run(asyncio.sleep(0, 7)) == 7
    hold.stop("cancelled")


async def test_the_thread_lives_as_long_as_something_is_held(runtime: Runtime) -> None:
    run_id = opened(runtime, "a", lease=EXPIRED)
    liveness = Liveness()

    def beating() -> bool:
        return any(thread.name == "liveness" for thread in threading.enumerate())

    with liveness.keeping(runtime, Hold(run_id)):
        await asyncio.to_thread(until, lambda: not runtime.catalog.workflows.expired(), "a beat")
    await asyncio.to_thread(until, lambda: not beating(), "the thread ends")
