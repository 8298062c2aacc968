"""Cancelling by id, whatever the id names and wherever it runs; and going on with what was stopped.

    a workflow run       it stops, with the workflows inside it and the runs that only they wait for
    an engine run        it stops, whoever waits for it: they are told that it was cancelled
    a Prefect flow run   that of its workflow run; one that has not begun never does

The wish is a row in the catalog, so it reaches a process on another host within a second, a worker between
two steps, and a workflow whose process is dead when the reconciler buries it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from prefect.client.schemas.objects import FlowRun, StateType
from prefect.states import Cancelled

from mutoscope.platform.catalog import Catalog, RunRecord, WorkflowRecord
from mutoscope.platform.errors import InvalidInput, ServerUnavailable, UnknownReference
from mutoscope.platform.orchestration import flow_states
from mutoscope.platform.orchestration.launch_tags import retried, retry_tag
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.orchestration.selection import from_tags
from mutoscope.platform.orchestration.server import prefect_client

_LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Cancellation:
    """What became of a wish to cancel.

    Attributes:
        kind: what the id named.
        state: of that, when it was last looked at; ``running`` if it has not stopped yet.
        stopped: workflow runs that were told to stop, outermost first.
    """

    kind: Literal["run", "workflow run", "flow run"]
    id: str
    state: str
    stopped: tuple[str, ...] = ()


async def cancel(runtime: Runtime, name: str, *, seconds: float = 30.0) -> Cancellation:
    """Have it stop, and wait for that.

    Args:
        name: id of a workflow run or an engine run, or the beginning of one; or of a Prefect flow run.
        seconds: how long to wait; the wish stands all the same.

    Raises:
        UnknownReference, AmbiguousReference: no run goes by that name, or several do.
        InvalidInput: it has ended already, or is something that cannot be cancelled.
    """
    match await asyncio.to_thread(_find, runtime.catalog, name):
        case RunRecord() as run:
            return await _cancel_run(runtime, run, seconds)
        case WorkflowRecord() as record:
            return await _cancel_workflow(runtime, record, seconds)
    return await _cancel_unbegun(name)


@dataclass(frozen=True, slots=True)
class Retry:
    """What to start to go on with a workflow run.

    Attributes:
        parameters: as recorded, with the seed that was drawn.
        weights, marks: as `run_workflow` takes them.
        pooled: it was executed by the flow pool.
    """

    record: WorkflowRecord
    parameters: Mapping[str, Any]
    weights: tuple[str, ...]
    marks: tuple[str, ...]
    pooled: bool


async def retry_of(runtime: Runtime, name: str) -> Retry:
    """How to go on with a workflow run that did not succeed: what its runs made is answered from memo.

    Raises:
        UnknownReference, AmbiguousReference: no workflow run goes by that name, or several do.
        InvalidInput: it is under way, has succeeded, or is part of another.
    """
    found = await asyncio.to_thread(_find, runtime.catalog, name)
    if isinstance(found, RunRecord):
        inside = found.workflow_run_id
        remedy = f"`mutoscope retry {inside}` goes on with its workflow" if inside else "submit it again"
        raise InvalidInput(f"{found} is an engine run: {remedy}")
    if found is None:
        raise UnknownReference(f"flow run {name} has not opened a record: start its workflow again")
    if found.parent_id is not None:
        outer = await asyncio.to_thread(_outermost, runtime.catalog, found)
        raise InvalidInput(
            f"workflow run {found.id} is part of another: `mutoscope retry {outer.id}` goes on with that"
        )
    if found.state == "running" or found.may_start_again:
        raise InvalidInput(f"workflow run {found.id} is under way: cancel it first, or wait for its end")
    if found.state == "succeeded":
        raise InvalidInput(f"workflow run {found.id} has succeeded: there is nothing to go on with")
    tags = await _tags(found)
    kept = [tag for tag in tags if tag.startswith("priority=")]
    origin = retry_tag(retried(tags) or found.id)
    return Retry(
        found,
        found.parameters,
        tuple(from_tags(tags)),
        (*kept, origin),
        pooled=found.prefect_deployment is not None,
    )


def _find(catalog: Catalog, name: str) -> RunRecord | WorkflowRecord | None:
    """What the name stands for; None for what may be a flow run without a record."""
    by_flow_run = catalog.workflows.find_by_flow_run(name)
    if by_flow_run is not None:
        return by_flow_run
    try:
        found = catalog.find(name)
    except UnknownReference:
        if _is_uuid(name):
            return None
        raise
    if isinstance(found, RunRecord | WorkflowRecord):
        return found
    raise InvalidInput(f"{name} is no run: `mutoscope ls workflows` and `mutoscope ls runs` list them")


def _is_uuid(name: str) -> bool:
    try:
        return str(UUID(name)) == name.lower()
    except ValueError:
        return False


def _outermost(catalog: Catalog, record: WorkflowRecord) -> WorkflowRecord:
    while record.parent_id is not None:
        record = catalog.workflows.get(record.parent_id)
    return record


async def _cancel_run(runtime: Runtime, run: RunRecord, seconds: float) -> Cancellation:
    if run.finished:
        raise InvalidInput(f"{run} has {run.state} already: there is nothing to cancel")
    run = await asyncio.to_thread(runtime.catalog.runs.request_cancel, run.id, force=True)
    deadline = time.monotonic() + seconds
    while not run.finished and time.monotonic() < deadline:
        await asyncio.sleep(_LOOK_SECONDS)
        run = await asyncio.to_thread(runtime.catalog.runs.get, run.id)
    return Cancellation("run", run.id, run.state)


async def _cancel_workflow(runtime: Runtime, record: WorkflowRecord, seconds: float) -> Cancellation:
    workflows = runtime.catalog.workflows
    if record.state != "running" and not record.may_start_again:
        raise InvalidInput(f"workflow run {record.id} has {record.state} already: there is nothing to cancel")
    stopped = await asyncio.to_thread(workflows.request_cancel, record.id)
    if record.state == "crashed":
        await _keep_off_the_pool(runtime, record)
    deadline = time.monotonic() + seconds
    while record.state == "running" and time.monotonic() < deadline:
        await asyncio.sleep(_LOOK_SECONDS)
        record = await asyncio.to_thread(workflows.get, record.id)
    record = await asyncio.to_thread(workflows.get, record.id)
    return Cancellation("workflow run", record.id, record.state, tuple(stopped))


async def _keep_off_the_pool(runtime: Runtime, record: WorkflowRecord) -> None:
    """A crashed run that waits to be started again does not; one that is starting learns of the wish."""
    if record.prefect_flow_run_id is None:
        return
    async with prefect_client() as client:
        flow_runs = await flow_states.read(client, [record.prefect_flow_run_id])
        flow_run = flow_runs.get(record.prefect_flow_run_id)
        if flow_run is not None and _is_at_work(flow_run):
            return
        line = f"workflow {record.workflow} was cancelled between two attempts"
        error = {"type": "WorkflowCancelled", "message": line}
        await asyncio.to_thread(runtime.catalog.workflows.finish, record.id, "cancelled", error=error)
        if flow_run is not None:
            await flow_states.close(client, record.prefect_flow_run_id, Cancelled(message=line))


async def _cancel_unbegun(name: str) -> Cancellation:
    """A flow run without a record: on its pool, or on the way to a process."""
    async with prefect_client() as client:
        flow_runs = await flow_states.read(client, [name])
        flow_run = flow_runs.get(name)
        if flow_run is None or flow_run.state is None:
            raise UnknownReference(f"no run and no flow run has the id {name!r}: `mutoscope ls` lists them")
        if flow_run.state.is_final():
            raise InvalidInput(
                f"flow run {name} has ended as {flow_run.state_name}: nothing is left to cancel"
            )
        state = await flow_states.stop(client, name)
    return Cancellation("flow run", name, state)


def _is_at_work(flow_run: FlowRun) -> bool:
    return flow_run.state_type in (StateType.PENDING, StateType.RUNNING)


async def _tags(record: WorkflowRecord) -> list[str]:
    """What its flow run was told; nothing where no server knows any more."""
    if record.prefect_flow_run_id is None:
        return []
    try:
        async with prefect_client() as client:
            found = await flow_states.read(client, [record.prefect_flow_run_id])
    except ServerUnavailable:
        return []
    return [tag for flow_run in found.values() for tag in flow_run.tags]
