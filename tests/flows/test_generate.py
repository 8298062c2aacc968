"""The generating flows against a Prefect server and a worker that paints noise."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId

from mutoscope.flows.generate.image_to_video import image_to_video
from mutoscope.flows.generate.text_to_image import text_to_image
from mutoscope.flows.generate.text_to_video import text_to_video
from mutoscope.platform.catalog import RunRecord
from mutoscope.platform.errors import InvalidParameter, UnknownReference
from mutoscope.platform.orchestration.registry import REGISTRY
from mutoscope.platform.orchestration.runtime import Runtime
from tests.support.fake_worker import FakeWorker

pytestmark = pytest.mark.usefixtures("prefect_server")

PATIENCE = 180.0


def by_card(runtime: Runtime) -> dict[str, RunRecord]:
    return {str(run.card): run for run in runtime.catalog.runs.list(kind="engine")}


async def test_a_prompt_becomes_a_picture_becomes_a_video(runtime: Runtime, worker: FakeWorker) -> None:
    made = await text_to_video(prompt="a red circle", seed=7, steps=2, video_steps=3, size="64x64")
    assert {name: ref.kind for name, ref in made.items()} == {"video": "video", "image": "image"}
    runs = by_card(runtime)
    flux, wan = runs["flux-t2i"], runs["wan-i2v"]
    assert flux.parameters["prompt"] == wan.parameters["prompt"] == "a red circle"
    assert (flux.seed, wan.seed) == (7, 7)
    assert (flux.parameters["num_inference_steps"], wan.parameters["num_inference_steps"]) == (2, 3)
    assert flux.parameters["guidance_scale"] == 2.0  # the recipe's
    assert runtime.catalog.runs.inputs(wan.id) == {"image": made["image"]}
    origin = runtime.catalog.lineage.weights_of(made["video"].digest)
    assert {use.card for use in origin} == {"flux-t2i", "wan-i2v"}


async def test_the_parts_make_what_the_whole_makes(runtime: Runtime, worker: FakeWorker) -> None:
    whole = await text_to_video(prompt="a red circle", seed=7)
    image = await text_to_image(prompt="a red circle", seed=7)
    video = await image_to_video(image=image, prompt="a red circle", seed=7)
    assert {"video": video, "image": image} == whole
    assert len(worker.done) == 2


async def test_a_second_run_shows_both_tasks_as_cached(runtime: Runtime, worker: FakeWorker) -> None:
    await text_to_video(prompt="a red circle", seed=7)
    await text_to_video(prompt="a red circle", seed=7)
    second, first = runtime.catalog.workflows.list()
    expected = {first.id: {"Completed"}, second.id: {"Cached"}}
    async with get_client() as client, asyncio.timeout(PATIENCE):
        for row in (first, second):
            chosen = FlowRunFilter(id=FlowRunFilterId(any_=[UUID(str(row.prefect_flow_run_id))]))
            tasks = await client.read_task_runs(flow_run_filter=chosen)
            while len(tasks) < 2 or not all(task.state and task.state.is_final() for task in tasks):
                await asyncio.sleep(0.1)  # task runs reach the server as events
                tasks = await client.read_task_runs(flow_run_filter=chosen)
            assert {task.name for task in tasks} == {"flux-t2i@1 · seed 7", "wan-i2v@1 · seed 7"}
            assert {task.state_name for task in tasks} == expected[row.id]


async def test_one_drawn_seed_serves_both_cards(runtime: Runtime, worker: FakeWorker) -> None:
    await text_to_video(prompt="a")
    (row,) = runtime.catalog.workflows.list()
    assert {run.seed for run in by_card(runtime).values()} == {row.parameters["seed"]}


async def test_a_size_the_card_cannot_make(runtime: Runtime, worker: FakeWorker) -> None:
    with pytest.raises(InvalidParameter, match=r"^size='128x64' is not valid: flux-t2i makes 64x64"):
        await text_to_image(prompt="a", size="128x64")
    (row,) = runtime.catalog.workflows.list()
    assert row.error is not None
    async with get_client() as client:
        flow_run = await client.read_flow_run(UUID(str(row.prefect_flow_run_id)))
    assert flow_run.state is not None
    assert flow_run.state.message == row.error["message"]
    assert worker.done == []


async def test_an_image_that_is_not_there(runtime: Runtime, worker: FakeWorker) -> None:
    with pytest.raises(UnknownReference, match="no artifact is named 'image:ffff'"):
        await image_to_video(image="image:ffff", prompt="a")


def test_every_workflow_is_found_by_name_and_by_id_and_requires_what_exists() -> None:
    names = {workflow.id: workflow.name for workflow in REGISTRY.all().values()}
    assert names.items() >= {
        ("image.text_to_image", "text_to_image"),
        ("video.image_to_video", "image_to_video"),
        ("image_video.t2i_i2v", "text_to_video"),
        ("video_audio.text_to_film", "text_to_film"),
    }
    for workflow in REGISTRY.all().values():
        REGISTRY.check_requirements(workflow)
