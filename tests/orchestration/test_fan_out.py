"""Many stages at once: bounded, in order, and wound up whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from mutoscope.platform.catalog import RunRecord
from mutoscope.platform.errors import InvalidParameter, RunFailed
from mutoscope.platform.orchestration.engine_run import engine_run
from mutoscope.platform.orchestration.fan_out import for_each, try_each
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.refs import ArtifactRef
from tests.support.fake_worker import FakeWorker, paint


class Crowd:
    """Stages that wait until they are let go, in any order; who is under way is known at any time."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.cancelled: list[int] = []
        self.most = 0
        self._inside = 0
        self._gates: dict[int, asyncio.Future[int]] = {}

    async def stage(self, item: int) -> int:
        gate = self._gates.setdefault(item, asyncio.get_running_loop().create_future())
        self.begun.append(item)
        self._inside += 1
        self.most = max(self.most, self._inside)
        try:
            return await gate
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # winding up takes a moment, as withdrawing a run does
            self.cancelled.append(item)
            raise
        finally:
            self._inside -= 1

    async def arrived(self, count: int) -> None:
        async with asyncio.timeout(30):
            while len(self.begun) < count:  # noqa: ASYNC110
                await asyncio.sleep(0)

    def release(self, item: int) -> None:
        self._gates[item].set_result(10 * item)

    def fail(self, item: int, error: Exception) -> None:
        self._gates[item].set_exception(error)


async def test_results_keep_the_order_of_items_and_no_more_than_allowed_are_under_way() -> None:
    crowd, taken = Crowd(), []

    def items() -> Iterator[int]:
        for item in range(5):
            taken.append(item)
            yield item

    whole = asyncio.ensure_future(for_each(items(), crowd.stage, at_most=2))
    for done_first, begun in ((1, 2), (2, 3), (3, 4)):
        await crowd.arrived(begun)
        assert len(taken) <= begun + 1  # an item is asked for when there is room, and one ahead
        crowd.release(done_first)
    await crowd.arrived(5)
    crowd.release(4)
    crowd.release(0)
    assert await whole == [0, 10, 20, 30, 40]
    assert crowd.most == 2
    assert await for_each([], crowd.stage) == []


async def test_the_first_error_ends_it_and_everything_has_ended_by_then() -> None:
    crowd = Crowd()
    whole = asyncio.ensure_future(for_each(range(9), crowd.stage, at_most=3))
    await crowd.arrived(3)
    crowd.fail(1, RunFailed("the second"))
    with pytest.raises(RunFailed, match=r"^the second$"):
        await whole
    assert sorted(crowd.cancelled) == [0, 2]
    assert crowd.begun == [0, 1, 2]


async def test_of_errors_at_the_same_moment_the_first_items_counts() -> None:
    crowd = Crowd()
    whole = asyncio.ensure_future(for_each(range(3), crowd.stage, at_most=3))
    await crowd.arrived(3)
    for item in (2, 1, 0):
        crowd.fail(item, RunFailed(f"item {item}"))
    with pytest.raises(RunFailed, match=r"^item 0$"):
        await whole


async def test_cancelling_the_caller_cancels_every_stage_and_waits_for_them() -> None:
    crowd = Crowd()
    whole = asyncio.ensure_future(for_each(range(9), crowd.stage, at_most=4))
    await crowd.arrived(4)
    whole.cancel()
    with pytest.raises(asyncio.CancelledError):
        await whole
    assert sorted(crowd.cancelled) == [0, 1, 2, 3]


async def test_caught_errors_take_the_places_of_results_and_others_do_not() -> None:
    crowd, error = Crowd(), RunFailed("no luck")
    whole = asyncio.ensure_future(try_each(range(3), crowd.stage, catch=RunFailed, at_most=3))
    await crowd.arrived(3)
    crowd.fail(1, error)
    crowd.release(0)
    crowd.release(2)
    assert await whole == [0, error, 20]

    crowd = Crowd()
    whole = asyncio.ensure_future(try_each(range(3), crowd.stage, catch=RunFailed, at_most=3))
    await crowd.arrived(3)
    crowd.fail(1, InvalidParameter("seed", -1, "use 0 or more"))
    with pytest.raises(InvalidParameter):
        await whole
    assert sorted(crowd.cancelled) == [0, 2]


async def test_at_least_one_must_be_allowed() -> None:
    with pytest.raises(InvalidParameter, match=r"^at_most=0 is not valid: use 1 or more$"):
        await for_each([1], Crowd().stage, at_most=0)


async def test_the_first_failed_run_takes_the_others_back(runtime: Runtime) -> None:
    """Outside any flow, as a script would use it: no Prefect server is there."""

    def perform(runtime: Runtime, run: RunRecord) -> dict[str, ArtifactRef]:
        if run.seed == 0:
            raise RuntimeError("out of memory")
        return paint(runtime, run)

    async def one(seed: int) -> dict[str, ArtifactRef]:
        return await engine_run("tiny-test", seed=seed)

    worker = FakeWorker(runtime, ("tiny-test",), perform=perform)
    with worker.serving(), pytest.raises(RunFailed, match="out of memory"):
        await for_each(range(100), one, at_most=3)
    runs = runtime.catalog.runs.list(kind="engine", limit=1000)
    assert len(runs) < 100
    assert [run for run in runs if not run.finished and not run.cancel_requested] == []
