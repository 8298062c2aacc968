"""Workflows on a work pool, so that the Prefect UI, schedules and other machines can start them.

`python -m mutoscope.platform.orchestration.deployments` brings the server to the state that the registry
describes; running it again changes nothing. Entrypoints are module paths: a file path would put folders on
`sys.path`.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

from prefect.client.schemas.actions import DeploymentUpdate, WorkPoolCreate, WorkPoolUpdate
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterTags
from prefect.client.schemas.objects import ConcurrencyLimitStrategy, ConcurrencyOptions
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.workers.process import ProcessWorker

from mutoscope.platform.errors import MutoscopeError
from mutoscope.platform.orchestration.automations import ensure_automations
from mutoscope.platform.orchestration.registry import Registry, Workflow, discover
from mutoscope.platform.orchestration.schedule import from_settings
from mutoscope.platform.orchestration.schedules import declared_schedules, reconcile
from mutoscope.platform.orchestration.server import prefect_client, wait_for_server
from mutoscope.platform.orchestration.stack import FLOW_RETRIES, HEARTBEAT_SECONDS, POOL
from mutoscope.platform.orchestration.workflow import TAG
from mutoscope.platform.settings import get_settings

if TYPE_CHECKING:
    from prefect.client.orchestration import PrefectClient
    from prefect.client.schemas.responses import DeploymentResponse


async def deploy_all(registry: Registry | None = None) -> tuple[str, ...]:
    """Create or update one deployment per workflow and remove those of workflows that are gone.

    Returns:
        Names of the deployed workflows.

    Raises:
        InvalidWorkflow: a workflow requires something that does not exist; nothing was changed.
        ServerUnavailable: no Prefect server answers.
    """
    registry, settings = registry or discover(), get_settings()
    workflows = sorted(registry.all().values(), key=lambda workflow: workflow.name)
    for workflow in workflows:
        registry.check_requirements(workflow)
    schedules = await declared_schedules(registry, from_settings(settings.schedules))
    async with prefect_client() as client:
        await ensure_pool(client)
        deployed = {}
        for workflow in workflows:
            deployment = await _deploy(client, workflow)
            await reconcile(client, deployment, schedules[workflow.id])
            deployed[workflow.id] = deployment.id
        ours = DeploymentFilter(tags=DeploymentFilterTags(all_=[TAG]))
        for deployment in await client.read_deployments(deployment_filter=ours):
            if deployment.id not in deployed.values() and deployment.work_pool_name == POOL:
                await client.delete_deployment(deployment.id)
        await ensure_automations(client, deployed)
    return tuple(workflow.name for workflow in workflows)


async def ensure_pool(client: PrefectClient) -> None:
    """Create the work pool unless it is there, and set its quota if the settings name one."""
    quota = get_settings().flows_at_once
    pool = WorkPoolCreate(
        name=POOL,
        type="process",
        description="Runs workflows as processes beside the server. They hold no GPU and load no model.",
        base_job_template=ProcessWorker.get_default_base_job_template(),
        concurrency_limit=quota,
    )
    try:
        await client.create_work_pool(pool)
    except ObjectAlreadyExists:
        if quota is not None:
            await client.update_work_pool(POOL, WorkPoolUpdate(concurrency_limit=quota))


async def _deploy(client: PrefectClient, workflow: Workflow) -> DeploymentResponse:
    """Create the deployment, or change what differs in place.

    A second "create" would do, too, but it drops every schedule and every start planned by one.
    """
    named = f"{workflow.flow.name}/{workflow.name}"
    wanted = _wanted(workflow)
    try:
        found = await client.read_deployment_by_name(named)
    except ObjectNotFound:
        flow_id = await client.create_flow_from_name(workflow.flow.name)
        await client.create_deployment(flow_id=flow_id, name=workflow.name, **wanted)
    else:
        if workflow.most_running is None:
            # Somebody may have set a quota in the UI; one that is declared goes before.
            del wanted["concurrency_limit"], wanted["concurrency_options"]
        await client.update_deployment(found.id, DeploymentUpdate(**wanted))
    return await client.read_deployment_by_name(named)


def _wanted(workflow: Workflow) -> dict[str, Any]:
    waits = ConcurrencyOptions(collision_strategy=ConcurrencyLimitStrategy.ENQUEUE)
    return {
        "version": workflow.flow.version,
        "description": _description(workflow),
        "tags": [TAG, workflow.id],
        "entrypoint": workflow.entrypoint,
        "work_pool_name": POOL,
        "parameter_openapi_schema": workflow.flow.parameters.model_dump(),
        "enforce_parameter_schema": True,
        # The code is installed where the pool runs; nothing is pulled.
        "pull_steps": [],
        # Wherever the pool runs: the heartbeat automation counts on this rhythm.
        "job_variables": {
            "env": {
                "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT_SECONDS),
                "PREFECT_CLIENT_MAX_RETRIES": str(FLOW_RETRIES),
            }
        },
        "concurrency_limit": workflow.most_running,
        "concurrency_options": waits if workflow.most_running is not None else None,
    }


def _description(workflow: Workflow) -> str:
    requires = ", ".join(f"`{name}`" for name in workflow.requires) or "nothing"
    returned = workflow.outputs.describe()
    returns = ", ".join(f"`{name}` ({held})" for name, held in returned.items()) or "nothing that is kept"
    return f"{workflow.description}\n\nWorkflow `{workflow.id}`; requires {requires}; returns {returns}."


async def _deploy_when_up() -> tuple[str, ...]:
    await wait_for_server()
    return await deploy_all()


def main() -> int:
    """Wait for the server, deploy, and say what is deployed; 0, or an error's exit code."""
    try:
        names = asyncio.run(_deploy_when_up())
    except MutoscopeError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(f"deployed {', '.join(names)} on the work pool {POOL!r}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
