"""A person's word between two stages, where the process waits for it. On the pool: test_prefect_ui."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from mutoscope.platform.catalog.approvals import Approval
from mutoscope.platform.errors import Declined, InvalidWorkflow, RunFailed
from mutoscope.platform.orchestration.approval import approval
from mutoscope.platform.orchestration.engine_run import engine_run
from mutoscope.platform.orchestration.registry import Registry
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.orchestration.workflow import workflow
from mutoscope.platform.refs import ArtifactRef
from tests.support.deadline import until
from tests.support.fake_worker import FakeWorker

pytestmark = pytest.mark.usefixtures("prefect_server")

REGISTRY = Registry()
TIMEOUT = 180.0


@workflow("test.asking", requires=["tiny-test"], registry=REGISTRY)
async def asking(seed: int, seconds: float = TIMEOUT) -> ArtifactRef:
    """Ask between two pictures."""
    first = await engine_run("tiny-test", seed=seed)
    await approval("image", first["image"], question="Another?", within=timedelta(seconds=seconds))
    return (await engine_run("tiny-test", seed=seed, image=first["image"]))["image"]


async def the_question(runtime: Runtime) -> Approval:
    return await asyncio.to_thread(
        until, lambda: next(iter(runtime.catalog.approvals.list()), None), "it asks"
    )


async def test_it_goes_on_when_somebody_says_so(runtime: Runtime, worker: FakeWorker) -> None:
    call = asyncio.ensure_future(asking(seed=1))
    asked = await the_question(runtime)
    assert len(worker.done) == 1
    assert runtime.catalog.workflows.get(asked.workflow_run_id).state == "running"
    (first,) = asked.subjects
    assert runtime.catalog.artifacts.get(first) is not None
    runtime.catalog.approvals.decide(asked.workflow_run_id, "image", True, "ada")
    await call
    assert len(worker.done) == 2
    assert runtime.catalog.workflows.get(asked.workflow_run_id).state == "succeeded"


async def test_a_no_ends_it_and_keeps_what_was_made(runtime: Runtime, worker: FakeWorker) -> None:
    call = asyncio.ensure_future(asking(seed=1))
    asked = await the_question(runtime)
    runtime.catalog.approvals.decide(asked.workflow_run_id, "image", False, "ada", "too dark")
    with pytest.raises(Declined, match=r"^image was declined by ada: too dark$"):
        await call
    row = runtime.catalog.workflows.get(asked.workflow_run_id)
    assert row.state == "cancelled"
    assert row.error == {"type": "Declined", "message": "image was declined by ada: too dark"}
    assert len(worker.done) == 1
    assert runtime.catalog.artifacts.state(asked.subjects[0]) == "present"


async def test_a_question_that_nobody_answers_fails_the_run(runtime: Runtime, worker: FakeWorker) -> None:
    with pytest.raises(RunFailed, match=r"nobody decided on 'image' within 0\.1 s: start the workflow again"):
        await asking(seed=1, seconds=0.1)


async def test_asking_outside_a_workflow(runtime: Runtime) -> None:
    with pytest.raises(InvalidWorkflow, match="approval 'image' is asked outside a workflow"):
        await approval("image", question="Another?")
