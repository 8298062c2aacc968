"""Starting a workflow by its name: in this process, or on the work pool through its deployment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prefect import tags
from prefect.client.schemas.actions import DeploymentFlowRunCreate
from prefect.exceptions import ObjectNotFound

from mutoscope.platform.errors import RunError, ServerUnavailable
from mutoscope.platform.orchestration import signature
from mutoscope.platform.orchestration.context import Observer, observer, opened, told
from mutoscope.platform.orchestration.registry import Workflow, discover
from mutoscope.platform.orchestration.runtime import get_runtime
from mutoscope.platform.orchestration.selection import pins_of, to_tags
from mutoscope.platform.orchestration.server import prefect_client, quiet_console
from mutoscope.platform.orchestration.workflow import TAG
from mutoscope.platform.refs import ArtifactRef


@dataclass(frozen=True, slots=True)
class WorkflowOutcome:
    """A workflow that succeeded: its row in the catalog, and the artifacts among its outputs by name."""

    run_id: str
    outputs: dict[str, ArtifactRef]


def find_workflow(name: str, given: Mapping[str, Any], weights: Sequence[str] = ()) -> Workflow:
    """The workflow of that name or id, if it takes parameters of these names, and runs the cards of these
    weights.

    Only names are checked here: a wrong *value* is for the workflow to refuse, so that its flow run shows it.
    Raises UnknownWorkflow, InvalidParameter or, for weights that are not there, UnknownReference.
    """
    registry = discover()
    found = registry.get(name)
    signature.check_names(found.name, found.parameters, given)
    if weights:
        pins_of(get_runtime().catalog, weights, registry.cards_of(found))
    return found


async def run_workflow(
    name: str,
    given: Mapping[str, Any],
    *,
    weights: Sequence[str] = (),
    marks: Sequence[str] = (),
    watch: Observer | None = None,
    on_open: Callable[[str], None] | None = None,
    on_notice: Callable[[str], None] | None = None,
    quiet: bool = True,
) -> WorkflowOutcome:
    """Run a workflow in this process and wait; its flow run appears at the Prefect server like any other.

    Args:
        weights: versions to use instead of the live ones, each naming its card; see `selection`.
        marks: what else its flow run is told by tags; see `launch_tags`.
        watch: called with an engine run's record whenever it changed.
        on_open: called with the id of the workflow's row once it is open.
        on_notice: called with a line that whoever waits should read meanwhile.
        quiet: keep Prefect's log lines off the terminal.

    Raises:
        UnknownWorkflow, InvalidParameter, ServerUnavailable, NoWorker: what the caller can mend.
        RunFailed, RunCancelled: how an engine run ended.
    """
    found = find_workflow(name, given, weights)
    get_runtime()
    async with prefect_client():
        pass
    if quiet:
        quiet_console()
    run_ids: list[str] = []

    def note(run_id: str) -> None:
        run_ids.append(run_id)
        if on_open is not None:
            on_open(run_id)

    tokens = observer.set(watch), opened.set(note), told.set(on_notice)
    try:
        with tags(TAG, found.id, *to_tags(weights), *marks):
            result = await found.flow(**given)
    finally:
        observer.reset(tokens[0])
        opened.reset(tokens[1])
        told.reset(tokens[2])
    if not run_ids:
        raise RunError(
            f"workflow {found.name} ended without being recorded: look at its flow run in the Prefect UI"
        )
    return WorkflowOutcome(run_ids[0], found.outputs.of(found.id, result).artifacts)


async def submit_workflow(
    name: str, given: Mapping[str, Any], *, weights: Sequence[str] = (), marks: Sequence[str] = ()
) -> str:
    """Queue a workflow on the work pool and return the id of its flow run.

    Args:
        weights, marks: as `run_workflow` takes them.

    Raises:
        UnknownWorkflow, InvalidParameter, ServerUnavailable: as `run_workflow`; also when it is not deployed
            there.
    """
    found = await asyncio.to_thread(find_workflow, name, given, weights)
    async with prefect_client() as client:
        try:
            deployment = await client.read_deployment_by_name(f"{found.flow.name}/{found.name}")
        except ObjectNotFound:
            raise ServerUnavailable(
                f"workflow {found.name} is not deployed at this Prefect server: `mutoscope up` deploys it"
            ) from None
        # The server would refuse a wrong value without a trace. The workflow refuses it in a line of its own,
        # on record.
        request = DeploymentFlowRunCreate(
            parameters=dict(given), enforce_parameter_schema=False, tags=[*to_tags(weights), *marks]
        )
        response = await client.request(
            "POST",
            "/deployments/{id}/create_flow_run",
            path_params={"id": deployment.id},
            json=request.model_dump(mode="json", exclude_unset=True),
        )
        response.raise_for_status()
        return str(response.json()["id"])
