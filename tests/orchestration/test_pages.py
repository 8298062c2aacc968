"""Run pages come with workflow runs, and never in their way."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from mutoscope.platform.custody.pages import Pages, Written
from mutoscope.platform.custody.pages_path import folder_of
from mutoscope.platform.errors import RunFailed
from mutoscope.platform.orchestration.engine_run import engine_run
from mutoscope.platform.orchestration.pages import RUN_PAGES, PageQueue
from mutoscope.platform.orchestration.registry import Registry
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.orchestration.workflow import workflow
from mutoscope.platform.refs import ArtifactRef
from tests.support.deadline import until
from tests.support.fake_worker import FakeWorker

REGISTRY = Registry()


@workflow("test.pictured", requires=["tiny-test"], registry=REGISTRY)
async def pictured(prompt: str, seed: int) -> ArtifactRef:
    return (await engine_run("tiny-test", seed=seed))["image"]


@workflow("test.around", requires=["test.pictured"], registry=REGISTRY)
async def around(prompt: str) -> ArtifactRef:
    return await pictured(prompt=prompt, seed=3)


def page(runtime: Runtime, workflow_id: str) -> str:
    """The page of the newest run of a workflow."""
    (record, *_) = runtime.catalog.workflows.list(workflow=workflow_id)
    RUN_PAGES.drain()
    return (runtime.store.published(f"{folder_of(record)}/index.html") or b"").decode()


@pytest.mark.usefixtures("prefect_server")
async def test_a_workflow_run_leaves_its_page(runtime: Runtime, worker: FakeWorker) -> None:
    image = await around(prompt="a picture within")
    assert image.digest in page(runtime, "test.around")
    assert "test.pictured" in page(runtime, "test.around")
    inner = page(runtime, "test.pictured")
    assert image.digest in inner
    assert "Part of" in inner


@pytest.mark.usefixtures("prefect_server")
async def test_a_failed_one_too(runtime: Runtime) -> None:
    def perform(*_: Any) -> dict[str, ArtifactRef]:
        raise ValueError("no <colour> left")

    with FakeWorker(runtime, ("tiny-test",), perform=perform).serving(), pytest.raises(RunFailed):
        await pictured(prompt="nothing", seed=1)
    assert "no &lt;colour&gt; left" in page(runtime, "test.pictured")


@pytest.mark.usefixtures("prefect_server")
async def test_a_page_that_cannot_be_written_fails_nobody(
    runtime: Runtime, worker: FakeWorker, caplog: pytest.LogCaptureFixture
) -> None:
    (runtime.settings.home / "store").mkdir(exist_ok=True)
    (runtime.settings.home / "store" / "runs").write_text("in the way")
    with caplog.at_level(logging.WARNING, "mutoscope.pages"):
        assert await pictured(prompt="a picture", seed=4)
        RUN_PAGES.drain()
    (line,) = [record.getMessage() for record in caplog.records if record.name == "mutoscope.pages"]
    assert "were not written" in line
    assert "`mutoscope pages rebuild` writes them" in line
    (record,) = runtime.catalog.workflows.list(workflow="test.pictured")
    assert record.state == "succeeded"


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, list[list[str]]]]:
    """Holds every writer until the event is set; what each wrote together."""
    gate, batches = threading.Event(), list[list[str]]()
    write = Pages.write

    def write_when_let(self: Pages, run_ids: list[str]) -> Written:
        batches.append(run_ids)
        assert gate.wait(60)
        return write(self, run_ids)

    monkeypatch.setattr(Pages, "write", write_when_let)
    yield gate, batches
    gate.set()


def test_runs_that_end_meanwhile_are_written_together(
    runtime: Runtime, held: tuple[threading.Event, list[list[str]]]
) -> None:
    gate, batches = held
    queue, ended = PageQueue(), []
    for number in range(4):
        ended.append(runtime.catalog.workflows.start("test.pictured", {"prompt": f"number {number}"}))
        runtime.catalog.workflows.finish(ended[-1], "succeeded", outputs={})
        queue.add(runtime, ended[-1])
        if number == 0:
            until(lambda: batches, "the thread to take the first")
    gate.set()
    queue.drain()
    assert batches == [ended[:1], ended[1:]]
    for run_id in ended:
        assert runtime.store.published(f"{folder_of(runtime.catalog.workflows.get(run_id))}/index.html")


def test_pages_can_be_switched_off(runtime: Runtime) -> None:
    quiet = Runtime(runtime.settings.model_copy(update={"run_pages": False}), runtime.catalog, runtime.store)
    run_id = runtime.catalog.workflows.start("test.pictured", {})
    runtime.catalog.workflows.finish(run_id, "succeeded", outputs={})
    queue = PageQueue()
    queue.add(quiet, run_id)
    queue.drain()
    assert list(runtime.store.pages()) == []
