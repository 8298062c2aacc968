"""Deployments: what the server is told, and that telling it again changes nothing."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectNotFound
from prefect.flows import load_flow_from_entrypoint
from prefect.settings import PREFECT_API_URL, temporary_settings
from pydantic import Field

from mutoscope.platform.errors import InvalidParameter, InvalidWorkflow, ServerUnavailable, UnknownWorkflow
from mutoscope.platform.orchestration import launch
from mutoscope.platform.orchestration.automations import HEARTBEAT_AUTOMATION, OURS, SCHEDULE_AUTOMATION
from mutoscope.platform.orchestration.deployments import deploy_all
from mutoscope.platform.orchestration.engine_run import engine_run
from mutoscope.platform.orchestration.registry import Registry
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.orchestration.stack import POOL
from mutoscope.platform.orchestration.workflow import TAG, workflow
from mutoscope.platform.refs import ArtifactRef
from tests.support.fake_worker import FakeWorker

pytestmark = pytest.mark.usefixtures("prefect_server")

REGISTRY = Registry()


@workflow("test.deployed", requires=["tiny-test"], registry=REGISTRY)
async def deployed(
    steps: Annotated[int, Field(strict=True, ge=1, description="How many.")], seed: int | None = None
) -> ArtifactRef:
    """Make a picture."""
    return (await engine_run("tiny-test", num_inference_steps=steps, seed=seed))["image"]


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "discover", lambda: REGISTRY)


async def test_a_deployment_says_all_that_is_needed_to_start_it(runtime: Runtime) -> None:
    assert await deploy_all(REGISTRY) == ("deployed",)
    async with get_client() as client:
        found = await client.read_deployment_by_name("deployed/deployed")
        pool = await client.read_work_pool(POOL)
    assert pool.type == "process"
    assert found.work_pool_name == POOL
    assert found.entrypoint == "tests.orchestration.test_deployments.deployed"
    assert found.tags == [TAG, "test.deployed"]
    assert found.enforce_parameter_schema
    assert found.parameter_openapi_schema is not None
    assert found.parameter_openapi_schema["properties"]["steps"]["description"] == "How many."
    told = "Workflow `test.deployed`; requires `tiny-test`; returns `artifact` (an artifact)."
    assert found.description == f"Make a picture.\n\n{told}"
    assert load_flow_from_entrypoint(str(found.entrypoint)).name == deployed.name


async def test_deploying_again_changes_nothing_and_removes_what_is_gone(runtime: Runtime) -> None:
    @workflow("test.gone", registry=(larger := Registry()))
    async def gone() -> None: ...

    @workflow("maintenance.report_failure", registry=larger)
    async def report_here() -> None: ...

    larger.register(REGISTRY.get("deployed"))

    async def state() -> tuple[list[Any], list[Any]]:
        async with get_client() as client:
            deployments = {str(d.id): d.name for d in await client.read_deployments()}
            automations = [
                automation.model_dump(mode="json", exclude={"updated"})
                for automation in sorted(await client.read_automations(), key=lambda one: one.name)
                if automation.name.startswith(OURS)
            ]
        return sorted(deployments.items()), automations

    await deploy_all(larger)
    before = await state()
    await deploy_all(larger)
    assert await state() == before
    assert [found["name"] for found in before[1]] == [HEARTBEAT_AUTOMATION, SCHEDULE_AUTOMATION]
    expected = before[1][0]["trigger"]["expect"]
    assert "prefect.flow-run.Suspended" in expected, "a run that waits for a person sends no heartbeats"
    await deploy_all(REGISTRY)
    assert [found["name"] for found in (await state())[1]] == [HEARTBEAT_AUTOMATION], "its reporter is gone"
    async with get_client() as client:
        with pytest.raises(ObjectNotFound):
            await client.read_deployment_by_name("gone/gone")
        assert await client.read_deployment_by_name("deployed/deployed")


async def test_nothing_is_deployed_when_a_requirement_is_missing(runtime: Runtime) -> None:
    @workflow("test.broken", requires=["no-such-card"], registry=(broken := Registry()))
    async def body() -> None: ...

    with pytest.raises(InvalidWorkflow, match="requires 'no-such-card'"):
        await deploy_all(broken)
    async with get_client() as client:
        with pytest.raises(ObjectNotFound):
            await client.read_deployment_by_name("body/body")


@pytest.mark.usefixtures("known")
async def test_running_here_tells_what_happens(runtime: Runtime, worker: FakeWorker) -> None:
    states: list[str] = []
    opened: list[str] = []
    outcome = await launch.run_workflow(
        "deployed", {"steps": 2}, watch=lambda run: states.append(run.state), on_open=opened.append
    )
    assert states[-1] == "succeeded"
    assert opened == [outcome.run_id]
    record = runtime.catalog.workflows.get(outcome.run_id)
    assert record.outputs == {name: ref.digest for name, ref in outcome.outputs.items()}
    assert set(outcome.outputs) == {"image"}


@pytest.mark.usefixtures("known")
async def test_starting_refuses_unknown_names_before_any_flow_run(runtime: Runtime) -> None:
    with pytest.raises(UnknownWorkflow, match="workflow 'deploid' is unknown: use one of deployed"):
        await launch.run_workflow("deploid", {})
    with pytest.raises(InvalidParameter, match="stepz=2 is not valid: deployed takes steps, seed"):
        await launch.run_workflow("test.deployed", {"stepz": 2})
    with pytest.raises(InvalidParameter, match="steps=-1 is not valid: use 1 or more"):
        await launch.run_workflow("deployed", {"steps": -1})


@pytest.mark.usefixtures("known")
async def test_without_a_server_one_line_says_so(runtime: Runtime) -> None:
    with (
        temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}),
        pytest.raises(
            ServerUnavailable,
            match=r"^no Prefect server answers at http://127\.0\.0\.1:9/api \(.*mutoscope up",
        ),
    ):
        await launch.run_workflow("deployed", {"steps": 1})


@pytest.mark.usefixtures("known")
async def test_submitting_queues_a_flow_run_even_of_a_wrong_value(runtime: Runtime) -> None:
    await deploy_all(REGISTRY)
    flow_run_id = await launch.submit_workflow("deployed", {"steps": -1})
    async with get_client() as client:
        flow_run = await client.read_flow_run(flow_run_id)  # type: ignore[arg-type]
    assert flow_run.parameters == {"steps": -1}
    assert flow_run.state is not None
    assert flow_run.state.is_scheduled()
