"""Workflows against a Prefect server: what is recorded, what fails how, what the server shows."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Annotated, TypedDict
from uuid import UUID

import pytest
from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    FlowRunFilter,
    FlowRunFilterId,
)
from prefect.client.schemas.objects import Artifact, FlowRun, TaskRun
from pydantic import Field

from mutoscope.platform.catalog import RunRecord, WorkflowRecord
from mutoscope.platform.errors import InvalidParameter, InvalidWorkflow, NoWorker, RunFailed, UnknownWorkflow
from mutoscope.platform.orchestration.context import current_workflow
from mutoscope.platform.orchestration.engine_run import engine_run
from mutoscope.platform.orchestration.fan_out import for_each
from mutoscope.platform.orchestration.kinds import Image
from mutoscope.platform.orchestration.registry import Registry
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.orchestration.stage import stage
from mutoscope.platform.orchestration.workflow import TAG, workflow
from mutoscope.platform.refs import ArtifactRef
from tests.support.fake_worker import FakeWorker, paint
from tests.support.platform import WEB_URL

pytestmark = pytest.mark.usefixtures("prefect_server")

REGISTRY = Registry()
TIMEOUT = 180.0
AT_THE_END = ("result", "lineage", "run-page")


@workflow("test.paint", requires=["tiny-test"], registry=REGISTRY)
async def paint_once(
    prompt: Annotated[str, Field(min_length=1, title="Prompt", description="What to paint.")],
    seed: Annotated[int | None, Field(strict=True, ge=0, title="Seed")] = None,
) -> ArtifactRef:
    """Paint a picture.

    Nothing more.
    """
    return (await engine_run("tiny-test", seed=seed))["image"]


@workflow("test.twice", requires=["tiny-test"], registry=REGISTRY)
async def paint_twice(seed: int) -> dict[str, ArtifactRef]:
    first = await engine_run("tiny-test", seed=seed)
    second = await engine_run("tiny-test", seed=seed, image=first["image"])
    return {"first": first["image"], "second": second["image"]}


@workflow("test.outer", requires=["test.paint"], registry=REGISTRY)
async def outer(prompt: str) -> ArtifactRef:
    return await paint_once(prompt=prompt, seed=3)


async def flow_run_of(record: WorkflowRecord) -> FlowRun:
    assert record.prefect_flow_run_id is not None
    async with get_client() as client:
        return await client.read_flow_run(UUID(record.prefect_flow_run_id))


async def task_runs_of(record: WorkflowRecord, count: int) -> list[TaskRun]:
    """Its task runs in order, once the server knows that `count` of them ended: they travel as events."""
    assert record.prefect_flow_run_id is not None
    chosen = FlowRunFilter(id=FlowRunFilterId(any_=[UUID(record.prefect_flow_run_id)]))
    async with get_client() as client, asyncio.timeout(TIMEOUT):
        while True:
            found = await client.read_task_runs(flow_run_filter=chosen)
            if sum(bool(run.state and run.state.is_final()) for run in found) >= count:
                return sorted(found, key=lambda run: run.start_time or run.expected_start_time)
            await asyncio.sleep(0.1)


async def artifacts_of(record: WorkflowRecord) -> dict[str, Artifact]:
    assert record.prefect_flow_run_id is not None
    chosen = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[UUID(record.prefect_flow_run_id)]))
    async with get_client() as client:
        return {str(found.key): found for found in await client.read_artifacts(artifact_filter=chosen)}


def the_row(runtime: Runtime, workflow_id: str) -> WorkflowRecord:
    (row,) = runtime.catalog.workflows.list(workflow=workflow_id)
    return row


async def test_a_run_is_recorded_with_outputs_and_engine_runs(runtime: Runtime, worker: FakeWorker) -> None:
    image = await paint_once(prompt="a red circle", seed=7)
    row = the_row(runtime, "test.paint")
    assert row.state == "succeeded"
    assert row.parameters == {"prompt": "a red circle", "seed": 7}
    assert row.outputs == {"image": image.digest}
    (run,) = runtime.catalog.runs.list(workflow_run_id=row.id)
    assert (run.id, run.seed, run.prefect_flow_run_id) == (worker.done[0], 7, row.prefect_flow_run_id)
    (task_run,) = await task_runs_of(row, 1)
    assert run.prefect_task_run_id == str(task_run.id)
    assert task_run.name == "tiny-test@1 · seed 7"
    assert (await flow_run_of(row)).name == "a red circle · seed 7"


async def test_the_drawn_seed_is_recorded(runtime: Runtime, worker: FakeWorker) -> None:
    await paint_once(prompt="a")
    row = the_row(runtime, "test.paint")
    assert isinstance(row.parameters["seed"], int)
    (run,) = runtime.catalog.runs.list(workflow_run_id=row.id)
    assert run.seed == row.parameters["seed"]
    assert (await flow_run_of(row)).name == f"a · seed {run.seed}"


async def test_a_hit_is_shown_as_cached(runtime: Runtime, worker: FakeWorker) -> None:
    first = await paint_twice(seed=1)
    second = await paint_twice(seed=1)
    assert first == second
    assert len(worker.done) == 2
    newest, oldest = runtime.catalog.workflows.list(workflow="test.twice")
    names = {
        row.id: [(run.name, run.state_name) for run in await task_runs_of(row, 2)] for row in (newest, oldest)
    }
    assert names[oldest.id] == [("tiny-test@1 · seed 1", "Completed")] * 2
    assert names[newest.id] == [("tiny-test@1 · seed 1", "Cached")] * 2
    table = json.loads(str((await artifacts_of(newest))["lineage"].data))
    assert [(step["card"], step["how"], step["workflow"]) for step in table] == [
        ("tiny-test@1", "cached", "test.twice")
    ] * 2
    assert str(first["first"]) in table[0]["made"]
    assert table[1]["used"] == f"image {first['first']}"
    assert [step["run"] for step in table] == worker.done


async def test_progress_and_pictures_are_published(runtime: Runtime) -> None:
    release = threading.Event()

    def perform(runtime: Runtime, run: RunRecord) -> dict[str, ArtifactRef]:
        assert release.wait(TIMEOUT)
        return paint(runtime, run)

    with FakeWorker(runtime, ("tiny-test",), perform=perform).serving():
        call = asyncio.ensure_future(paint_once(prompt="a", seed=1))
        published: dict[str, Artifact] = {}
        async with asyncio.timeout(TIMEOUT):
            while not published:
                await asyncio.sleep(0.1)
                for row in runtime.catalog.workflows.list():
                    published = await artifacts_of(row)
        progress = published["tiny-test-progress"]
        assert (progress.data, progress.description) == (50.0, "tiny-test: paint 1/2")
        release.set()
        image = await call
    published = await artifacts_of(the_row(runtime, "test.paint"))
    assert set(published) == {"tiny-test-progress", "tiny-test-run", "tiny-test-image", *AT_THE_END}
    assert published["tiny-test-progress"].data == 100.0
    assert published["tiny-test-image"].data == f"{WEB_URL}/artifacts/{image.digest}"
    summary = str(published["tiny-test-run"].data)
    assert f"[{image}]({WEB_URL}/artifacts/{image.digest}/page)" in summary
    assert "### tiny-test: computed" in summary
    page = f"{WEB_URL}/artifacts/{image.digest}"
    assert f"![{image}]({page})\n\n[{image}]({page}/page)" in str(published["result"].data)
    assert str(published["run-page"].data).startswith("[The whole run on one page](file:///")
    await paint_once(prompt="a", seed=1)
    cached = await artifacts_of(runtime.catalog.workflows.list()[0])
    assert set(cached) == {"tiny-test-image", *AT_THE_END}


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({}, "prompt=None is not valid: prompt is required; pass prompt=..."),
        ({"prompt": ""}, "prompt='' is not valid: use at least 1 characters"),
        ({"prompt": "a", "seed": "seven"}, "seed='seven' is not valid: use an integer"),
    ],
)
async def test_bad_input_fails_the_flow_run_with_the_callers_line(
    runtime: Runtime, given: dict[str, object], line: str
) -> None:
    with pytest.raises(InvalidParameter) as raised:
        await paint_once(**given)
    assert str(raised.value) == line
    async with get_client() as client:
        newest = max(await client.read_flow_runs(), key=lambda run: run.created or run.expected_start_time)
    assert newest.state is not None
    assert (newest.state.name, newest.state.message) == ("Failed", line)
    assert runtime.catalog.workflows.list() == []


async def test_no_worker_fails_flow_and_task_with_one_line_and_keeps_the_run(runtime: Runtime) -> None:
    with pytest.raises(NoWorker) as raised:
        await paint_once(prompt="a", seed=1)
    row = the_row(runtime, "test.paint")
    assert row.state == "failed"
    assert row.error == {"type": "NoWorker", "message": str(raised.value)}
    flow_run, (task_run,) = await flow_run_of(row), await task_runs_of(row, 1)
    assert flow_run.state is not None
    assert task_run.state is not None
    assert flow_run.state.message == task_run.state.message == str(raised.value)
    (run,) = runtime.catalog.runs.list(kind="engine")
    assert run.state == "queued"


async def test_a_failed_run_is_not_remembered_as_a_result(runtime: Runtime) -> None:
    broken = True

    def perform(runtime: Runtime, run: RunRecord) -> dict[str, ArtifactRef]:
        if broken:
            raise RuntimeError("out of memory")
        return paint(runtime, run)

    with FakeWorker(runtime, ("tiny-test",), perform=perform).serving():
        with pytest.raises(RunFailed, match="out of memory"):
            await paint_once(prompt="a", seed=1)
        broken = False
        await paint_once(prompt="a", seed=1)
    assert [row.state for row in runtime.catalog.workflows.list()] == ["succeeded", "failed"]


async def test_a_bug_keeps_its_own_message(runtime: Runtime) -> None:
    @workflow("test.bug", registry=Registry())
    async def bug() -> None:
        raise ZeroDivisionError("by zero")

    with pytest.raises(ZeroDivisionError):
        await bug()
    row = the_row(runtime, "test.bug")
    assert (row.state, row.error) == ("failed", {"type": "ZeroDivisionError", "message": "by zero"})


async def test_a_workflow_inside_another_is_recorded_under_it(runtime: Runtime, worker: FakeWorker) -> None:
    image = await outer(prompt="a")
    parent, child = the_row(runtime, "test.outer"), the_row(runtime, "test.paint")
    assert child.parent_id == parent.id
    assert parent.parent_id is None
    assert parent.outputs == child.outputs == {"image": image.digest}
    assert parent.prefect_flow_run_id != child.prefect_flow_run_id


async def test_what_is_not_declared_may_not_run(runtime: Runtime, worker: FakeWorker) -> None:
    registry = Registry()

    @workflow("test.liar", registry=registry)
    async def liar() -> None:
        await engine_run("tiny-test", seed=1)

    @workflow("test.sneak", registry=registry)
    async def sneak() -> None:
        await paint_once(prompt="a")

    for bad, used in ((liar, "tiny-test"), (sneak, "test.paint")):
        with pytest.raises(
            InvalidWorkflow, match=f"runs '{used}' without declaring it: add it to its `requires`"
        ):
            await bad()
    assert worker.done == []


async def test_a_workflow_may_not_run_inside_itself(runtime: Runtime) -> None:
    registry = Registry()
    # The declaration is honest about "test.b" only; the cycle shows when it is executed.
    calls: dict[str, Callable[[], object]] = {}

    @workflow("test.a", requires=["test.b"], registry=registry)
    async def a() -> None:
        await calls["b"]()  # type: ignore[misc]

    @workflow("test.b", registry=registry)
    async def b() -> None:
        context = current_workflow.get()
        assert context is not None
        assert context.chain == ("test.a", "test.b")
        await a()

    calls["b"] = b
    with pytest.raises(
        InvalidWorkflow, match=r"'test\.a' is already running here, test\.a -> test\.b -> test\.a"
    ):
        await a()


async def test_cancelling_a_workflow_cancels_its_run(runtime: Runtime) -> None:
    begun, release = threading.Event(), threading.Event()

    def perform(runtime: Runtime, run: RunRecord) -> dict[str, ArtifactRef]:
        begun.set()
        assert release.wait(TIMEOUT)
        return paint(runtime, run)

    with FakeWorker(runtime, ("tiny-test",), perform=perform).serving():
        call = asyncio.ensure_future(paint_once(prompt="a", seed=1))
        assert await asyncio.to_thread(begun.wait, TIMEOUT)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        (run,) = runtime.catalog.runs.list(kind="engine")
        assert run.cancel_requested
        release.set()
    assert the_row(runtime, "test.paint").state == "cancelled"


async def test_engine_runs_in_parallel(runtime: Runtime, worker: FakeWorker) -> None:
    @workflow("test.fan", requires=["tiny-test"], registry=Registry())
    async def fan(seed: int) -> dict[str, ArtifactRef]:
        made = await asyncio.gather(*(engine_run("tiny-test", seed=seed + i) for i in range(4)))
        return {str(i): outputs["image"] for i, outputs in enumerate(made)}

    outputs = await fan(seed=10)
    assert len({ref.digest for ref in outputs.values()}) == 4
    assert len(worker.done) == 4


async def test_engine_run_in_a_plain_flow_and_outside_any(runtime: Runtime, worker: FakeWorker) -> None:
    @flow(persist_result=False)
    async def plain() -> dict[str, ArtifactRef]:
        return await engine_run("tiny-test", seed=1)

    assert await plain() == await engine_run("tiny-test", seed=1)
    assert len(worker.done) == 1


def test_the_form_says_what_the_types_say() -> None:
    schema = paint_once.parameters.model_dump()
    assert schema["required"] == ["prompt"]
    assert schema["properties"]["prompt"] == {
        "title": "Prompt",
        "description": "What to paint.",
        "type": "string",
        "minLength": 1,
        "position": 0,
    }
    assert schema["properties"]["seed"]["title"] == "Seed"
    assert paint_once.description == "Paint a picture.\n\nNothing more."
    assert paint_once.name == "paint_once"


async def test_flow_runs_inside_carry_the_tag_and_task_runs_none(
    runtime: Runtime, worker: FakeWorker
) -> None:
    await outer(prompt="a")
    child = the_row(runtime, "test.paint")
    assert TAG in (await flow_run_of(child)).tags
    (task_run,) = await task_runs_of(child, 1)
    assert task_run.tags == []  # a tag costs each task a request


class Painted(TypedDict):
    image: Image
    facts: dict[str, int]


async def test_data_is_kept_as_an_artifact_that_the_workflow_made(
    runtime: Runtime, worker: FakeWorker
) -> None:
    @workflow("test.tells", requires=["tiny-test"], registry=Registry())
    async def tells(seed: int) -> Painted:
        return {"image": (await engine_run("tiny-test", seed=seed))["image"], "facts": {"seed": seed}}

    made = await tells(seed=3)
    assert made["facts"] == {"seed": 3}
    row = the_row(runtime, "test.tells")
    assert row.outputs is not None
    kept = runtime.catalog.artifacts.resolve(f"json:{row.outputs['facts']}")
    assert json.loads(runtime.store.get(kept.digest)) == {"seed": 3}
    (maker,) = runtime.catalog.runs.generated_by(kept.digest)
    assert (maker.kind, maker.workflow_run_id) == ("conclusion", row.id)


async def test_an_output_of_the_wrong_kind_fails_the_workflow_in_one_line(
    runtime: Runtime, worker: FakeWorker
) -> None:
    @workflow("test.swapped", requires=["tiny-test"], registry=Registry())
    async def swapped(seed: int) -> Image:
        return (await engine_run("tiny-test", seed=seed))["latent"]

    with pytest.raises(InvalidWorkflow, match=r"'test\.swapped' returned image=latent:\w+ where it declares"):
        await swapped(seed=1)
    row = the_row(runtime, "test.swapped")
    assert (row.state, row.outputs) == ("failed", None)
    assert row.error is not None
    state = (await flow_run_of(row)).state
    assert state is not None
    assert state.message == row.error["message"]


async def test_an_artifact_parameter_is_a_reference_of_its_kind(runtime: Runtime, worker: FakeWorker) -> None:
    seen: list[ArtifactRef] = []

    @workflow("test.takes", registry=Registry())
    async def takes(image: Image, more: list[Image] = []) -> None:  # noqa: B006
        seen.extend([image, *more])

    made = await engine_run("tiny-test", seed=1)
    image = made["image"]
    await takes(image=str(image), more=[image, image.digest[:8]])
    assert seen == [image] * 3
    full = f"image:{image.digest}"
    assert the_row(runtime, "test.takes").parameters["image"] == full
    for wrong, complaint in (
        (made["latent"], "image=.* is not valid: use a reference such as image:3fa9c1d2e4f5"),
        (made["latent"].digest, "use an artifact of kind image: it is a latent"),
    ):
        with pytest.raises(InvalidParameter, match=complaint):
            await takes(image=wrong)


async def test_a_stage_is_a_card_or_a_workflow_by_its_id(runtime: Runtime, worker: FakeWorker) -> None:
    @workflow("test.staged", requires=["tiny-test", paint_once], registry=REGISTRY)
    async def staged(ids: list[str]) -> dict[str, Image]:
        given = {"tiny-test": {}, "test.paint": {"prompt": "a"}, "paint_once": {"prompt": "a"}}
        made = [await stage(each, seed=5, **given.get(each, {})) for each in ids]
        return {f"image_{at}": outputs["image"] for at, outputs in enumerate(made)}

    made = await staged(ids=["tiny-test", "test.paint", "paint_once"])
    assert len(set(made.values())) == 1  # the same run, asked for in three ways
    assert len(worker.done) == 1
    assert REGISTRY.get("test.staged").requires == ("tiny-test", "test.paint")
    rows = runtime.catalog.workflows.list(workflow="test.paint")
    assert {row.parent_id for row in rows} == {the_row(runtime, "test.staged").id}
    for wrong, error in (("test.twice", InvalidWorkflow), ("no-such", UnknownWorkflow)):
        with pytest.raises(error):
            await staged(ids=[wrong])


async def test_fanned_out_workflows_are_recorded_under_their_parent_and_cancelled_with_it(
    runtime: Runtime,
) -> None:
    @workflow("test.crowd", requires=[paint_once], registry=REGISTRY)
    async def crowd(count: int) -> dict[str, Image]:
        made = await for_each(range(count), lambda seed: paint_once(prompt="a", seed=seed), at_most=2)
        return {str(at): image for at, image in enumerate(made)}

    with FakeWorker(runtime, ("tiny-test",)).serving() as worker:
        made = await crowd(count=3)
    assert len(worker.done) == len(set(made.values())) == 3
    parent = the_row(runtime, "test.crowd")
    children = runtime.catalog.workflows.list(workflow="test.paint")
    assert [(child.parent_id, child.state) for child in children] == [(parent.id, "succeeded")] * 3

    begun, release = threading.Semaphore(0), threading.Event()

    def perform(runtime: Runtime, run: RunRecord) -> dict[str, ArtifactRef]:
        begun.release()
        assert release.wait(TIMEOUT)
        return paint(runtime, run)

    with FakeWorker(runtime, ("tiny-test",), perform=perform).serving():
        call = asyncio.ensure_future(crowd(count=6))
        assert await asyncio.to_thread(begun.acquire, timeout=TIMEOUT)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        release.set()
    rows = [row for row in runtime.catalog.workflows.list() if row.state != "succeeded"]
    assert {row.state for row in rows} == {"cancelled"}
    open_runs = [
        run for run in runtime.catalog.runs.list(kind="engine") if run.state in ("queued", "running")
    ]
    assert [run for run in open_runs if not run.cancel_requested] == []


async def test_fanning_out_works_inside_a_task(runtime: Runtime, worker: FakeWorker) -> None:
    @task(persist_result=False, cache_policy=NO_CACHE)
    async def inside(count: int) -> int:
        made = await for_each(range(count), lambda seed: engine_run("tiny-test", seed=seed), at_most=2)
        return len({outputs["image"] for outputs in made})

    @flow(persist_result=False)
    async def plain() -> int:
        return await inside(3)

    assert await plain() == 3
