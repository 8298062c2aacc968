"""Workflows that are stopped, limited, started again or given a place in the queue."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from uuid import UUID

import pytest
from prefect import tags
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State

from mutoscope.platform.catalog import RunRecord, WorkflowRecord
from mutoscope.platform.errors import (
    CatalogUnavailable,
    InvalidInput,
    InvalidParameter,
    RunCancelled,
    TimeLimitExceeded,
    UnknownReference,
    WorkflowCancelled,
)
from mutoscope.platform.orchestration import submit
from mutoscope.platform.orchestration.cancelling import cancel, retry_of
from mutoscope.platform.orchestration.engine_run import engine_run
from mutoscope.platform.orchestration.fan_out import for_each
from mutoscope.platform.orchestration.launch_tags import priority_tags
from mutoscope.platform.orchestration.registry import Registry
from mutoscope.platform.orchestration.runtime import Runtime, use_runtime
from mutoscope.platform.orchestration.workflow import TAG, workflow
from mutoscope.platform.refs import ArtifactRef
from tests.support.deadline import until
from tests.support.fake_worker import FakeWorker, paint

pytestmark = pytest.mark.usefixtures("prefect_server")

REGISTRY = Registry()
TIMEOUT = 180.0
Outputs = dict[str, ArtifactRef]


@workflow("test.leaf", requires=["tiny-test"], registry=REGISTRY)
async def leaf(seed: int | None = None) -> Outputs:
    return await engine_run("tiny-test", seed=seed)


@workflow("test.branch", requires=[leaf], registry=REGISTRY)
async def branch(count: int) -> Outputs:
    first = await leaf(seed=100)
    await for_each(range(count), lambda n: leaf(seed=n))
    return first


@workflow("test.drawing", requires=["tiny-test", leaf], registry=REGISTRY)
async def drawing(seed: int | None = None) -> Outputs:
    """One seed is drawn for the workflow, one for a run, one for a workflow inside."""
    first = await engine_run("tiny-test", seed=seed)
    second = await engine_run("tiny-test")
    third = await leaf()
    return {"first": first["image"], "second": second["image"], "third": third["image"]}


@workflow("test.limited", requires=[leaf], registry=REGISTRY, time_limit=2.0)
async def limited(seed: int) -> Outputs:
    return await leaf(seed=seed)


class Gate:
    """Performs runs only when it is opened; those of the seeds in `free` at once."""

    def __init__(self, *free: int) -> None:
        self.free = set(free)
        self.begun: list[str] = []
        self.opened = threading.Event()

    def __call__(self, runtime: Runtime, run: RunRecord) -> Outputs:
        self.begun.append(run.id)
        if run.seed not in self.free and not self.opened.wait(TIMEOUT):
            raise TimeoutError("never opened")
        return paint(runtime, run)


@pytest.fixture
def gate(runtime: Runtime) -> Iterator[Gate]:
    """A worker whose runs wait, until the test ends at the latest."""
    made = Gate()
    with FakeWorker(runtime, ("tiny-test",), perform=made).serving():
        try:
            yield made
        finally:
            made.opened.set()


async def eventually(condition: Callable[[], object], what: str = "what the test arranged") -> None:
    await asyncio.to_thread(until, condition, what)


def rows(runtime: Runtime, name: str) -> list[WorkflowRecord]:
    return runtime.catalog.workflows.list(workflow=name)


async def shown(record: WorkflowRecord) -> State:
    async with get_client() as client:
        state = (await client.read_flow_run(UUID(str(record.prefect_flow_run_id)))).state
    assert state is not None
    return state


async def test_cancelling_by_id_stops_workflows_inside_and_their_runs(runtime: Runtime, gate: Gate) -> None:
    gate.free.add(100)
    call = asyncio.ensure_future(branch(count=2))
    await eventually(lambda: len(runtime.catalog.runs.list(kind="engine")) == 3)
    (outer,) = rows(runtime, "test.branch")
    told = await cancel(runtime, outer.id[:20], seconds=TIMEOUT)
    with pytest.raises(WorkflowCancelled, match=f"was cancelled: .* `mutoscope retry {outer.id}`"):
        await call
    assert (told.kind, told.state, told.stopped[0]) == ("workflow run", "cancelled", outer.id)
    leaves = rows(runtime, "test.leaf")
    assert sorted(row.state for row in leaves) == ["cancelled", "cancelled", "succeeded"]
    gate.opened.set()
    await eventually(lambda: all(run.finished for run in runtime.catalog.runs.list(kind="engine")))
    states = {run.seed: run.state for run in runtime.catalog.runs.list(kind="engine")}
    assert states == {100: "succeeded", 0: "cancelled", 1: "cancelled"}
    assert (await shown(outer)).type.value == "CANCELLED"


async def test_one_of_several_workflows_is_cancelled_alone(runtime: Runtime, gate: Gate) -> None:
    @workflow("test.tolerant", requires=[leaf], registry=REGISTRY)
    async def tolerant() -> Outputs:
        made = await asyncio.gather(leaf(seed=0), leaf(seed=1), return_exceptions=True)
        assert isinstance(made[1], WorkflowCancelled)
        assert not isinstance(made[0], BaseException)
        return made[0]

    call = asyncio.ensure_future(tolerant())
    await eventually(lambda: len(runtime.catalog.runs.list(kind="engine")) == 2)
    one = next(row for row in rows(runtime, "test.leaf") if row.parameters["seed"] == 1)
    await cancel(runtime, str(one.prefect_flow_run_id), seconds=TIMEOUT)
    gate.opened.set()
    assert set(await call) == {"image", "latent"}
    assert (await shown(runtime.catalog.workflows.get(one.id))).type.value == "CANCELLED"


async def test_cancelling_a_run_tells_whoever_waits_for_it(runtime: Runtime, gate: Gate) -> None:
    call = asyncio.ensure_future(leaf(seed=1))
    await eventually(lambda: gate.begun)
    told = await cancel(runtime, gate.begun[0], seconds=0.0)
    assert (told.kind, told.state) == ("run", "running")
    gate.opened.set()
    with pytest.raises(RunCancelled, match="start the workflow again"):
        await call
    (row,) = rows(runtime, "test.leaf")
    assert (row.state, (row.error or {})["type"]) == ("failed", "RunCancelled"), "it was not cancelled itself"


async def test_what_has_ended_or_is_not_there_cannot_be_cancelled(runtime: Runtime, gate: Gate) -> None:
    gate.opened.set()
    await leaf(seed=1)
    (row,) = rows(runtime, "test.leaf")
    with pytest.raises(InvalidInput, match="has succeeded already: there is nothing to cancel"):
        await cancel(runtime, row.id)
    with pytest.raises(InvalidInput, match="has succeeded already"):
        await cancel(runtime, gate.begun[0])
    with pytest.raises(UnknownReference, match="no run and no flow run has the id"):
        await cancel(runtime, "3a1d8f7e-0000-4000-8000-000000000000")
    with pytest.raises(InvalidInput, match="there is nothing to go on with"):
        await retry_of(runtime, row.id)


async def test_a_workflow_beyond_its_time_limit_fails_and_takes_its_runs_back(
    runtime: Runtime, gate: Gate
) -> None:
    with pytest.raises(TimeLimitExceeded, match=r"limited took longer than its time limit of 2 s"):
        await limited(seed=1)
    (row,) = rows(runtime, "test.limited")
    assert (row.state, row.time_limit_seconds) == ("failed", 2.0)
    # However far it came: a busy machine may not have got to the run.
    assert {each.state for each in rows(runtime, "test.leaf")} <= {"cancelled"}
    gate.opened.set()
    await eventually(lambda: all(run.finished for run in runtime.catalog.runs.list(kind="engine")))
    assert {run.state for run in runtime.catalog.runs.list(kind="engine")} <= {"cancelled"}


async def test_a_workflow_that_is_retried_draws_what_it_drew_and_finds_what_it_made(
    runtime: Runtime, gate: Gate
) -> None:
    gate.opened.set()
    made = await drawing()
    (row,) = rows(runtime, "test.drawing")
    # As if its process had died before it could say so.
    runtime.catalog.workflows.finish(row.id, "crashed", error={"type": "ProcessDied", "message": "silent"})
    again = await retry_of(runtime, row.id)
    assert again.parameters == row.parameters
    assert again.marks == (f"retry={row.id}",)
    before = len(gate.begun)
    with tags(TAG, *again.marks):
        assert await drawing(**again.parameters) == made
    assert len(gate.begun) == before, "nothing was computed again"
    assert await drawing(**again.parameters) != made, "another run of it draws anew"


async def test_priority_is_that_of_the_flow_run_unless_a_run_says_its_own(
    runtime: Runtime, gate: Gate
) -> None:
    @workflow("test.urgent", requires=["tiny-test", leaf], registry=REGISTRY)
    async def urgent() -> None:
        await leaf(seed=1)
        await engine_run("tiny-test", seed=2, priority=9, time_limit=60.0)

    gate.opened.set()
    with tags(TAG, *priority_tags(5)):
        await urgent()
    runs = {run.seed: run for run in runtime.catalog.runs.list(kind="engine")}
    assert (runs[1].priority, runs[1].time_limit_seconds) == (5, None)
    assert (runs[2].priority, runs[2].time_limit_seconds) == (9, 60.0)
    with pytest.raises(InvalidParameter, match=r"^time_limit=0 is not valid: use a positive number"):
        await engine_run("tiny-test", seed=3, time_limit=0)
    with pytest.raises(InvalidParameter, match=r"^priority=1.5 is not valid: use an integer from -1000"):
        await engine_run("tiny-test", seed=3, priority=1.5)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match=r"^priority='soon' is not valid"), tags("priority=soon"):
        await leaf(seed=4)


async def test_a_catalog_that_is_away_for_a_moment_fails_no_workflow(
    runtime: Runtime, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every question of a workflow fails once before it is answered."""
    gate.opened.set()
    failed: set[str] = set()
    catalog = runtime.catalog
    for owner, name in (
        (catalog.workflows, "start"), (catalog.workflows, "finish"),
        (catalog.runs, "enqueue"), (catalog.workers, "contract"),
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, _failing_once(getattr(owner, name), name, failed))
    made = await leaf(seed=1)
    assert failed == {"start", "finish", "enqueue", "contract"}
    (row,) = rows(runtime, "test.leaf")
    assert (row.state, row.outputs) == ("succeeded", {name: ref.digest for name, ref in made.items()})
    (run,) = catalog.runs.list(kind="engine")
    assert run.waiters == 1


def _failing_once(method: Callable[..., object], name: str, failed: set[str]) -> Callable[..., object]:
    def ask(*args: object, **kwargs: object) -> object:
        if name not in failed:
            failed.add(name)
            raise CatalogUnavailable("the catalog does not answer (restarting): check the database")
        return method(*args, **kwargs)

    return ask


async def test_a_catalog_that_stays_away_is_said_in_one_line(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = runtime.settings.model_copy(update={"catalog_patience_seconds": 0.3})
    impatient = Runtime(settings, runtime.catalog, runtime.store)

    def away(*args: object, **kwargs: object) -> None:
        raise CatalogUnavailable("the catalog postgresql://db does not answer (refused): check the database")

    monkeypatch.setattr(runtime.catalog.runs, "enqueue", away)
    with use_runtime(impatient), pytest.raises(CatalogUnavailable, match="does not answer"):
        await submit.submit_run("tiny-test", seed=1)


async def test_a_run_waits_for_a_worker_that_was_there_a_moment_ago(runtime: Runtime) -> None:
    settings = runtime.settings.model_copy(update={"lease_seconds": 1e-6, "worker_patience_seconds": TIMEOUT})
    with use_runtime(Runtime(settings, runtime.catalog, runtime.store)), contextlib.ExitStack() as later:
        # Long dead by the lease, but not marked as stopped: it was killed.
        with FakeWorker(runtime, ("tiny-test",)).serving() as gone:
            pass
        runtime.catalog.workers.heartbeat(gone.id, state="ready")
        call = asyncio.ensure_future(submit.submit_run("tiny-test", seed=1))
        await eventually(lambda: runtime.catalog.runs.list(kind="engine"))
        assert not call.done()
        later.enter_context(FakeWorker(runtime, ("tiny-test",)).serving())
        assert (await call).run.state == "succeeded"
