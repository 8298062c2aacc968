"""Prefect's view of flow runs, read and put right in a few requests.

Every change here is one that anybody may repeat: of two reconcilers that make it, the second changes nothing
that matters.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterState,
    FlowRunFilterStateType,
    FlowRunFilterTags,
    TaskRunFilter,
    TaskRunFilterState,
    TaskRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.exceptions import ObjectNotFound
from prefect.states import AwaitingRetry, Cancelled, Cancelling, Completed, Crashed, Failed

from mutoscope.platform.batches import batched
from mutoscope.platform.catalog.workflow_records import WorkflowRecord

if TYPE_CHECKING:
    from prefect.client.orchestration import PrefectClient

PAGE = 200
"""Flow runs in one answer of the server."""

UNFINISHED = (StateType.PENDING, StateType.RUNNING, StateType.CANCELLING)
"""States in which a process is at work on a flow run, or should be."""


async def read(client: PrefectClient, flow_run_ids: Iterable[str]) -> dict[str, FlowRun]:
    """The flow runs of those ids that the server still knows."""
    found: dict[str, FlowRun] = {}
    for batch in batched(flow_run_ids, PAGE):
        chosen = FlowRunFilter(id=FlowRunFilterId(any_=[UUID(each) for each in batch]))
        for flow_run in await client.read_flow_runs(flow_run_filter=chosen, limit=PAGE):
            found[str(flow_run.id)] = flow_run
    return found


async def unfinished(client: PrefectClient, tag: str) -> AsyncIterator[FlowRun]:
    """The flow runs with that tag which Prefect takes for being at work."""
    chosen = FlowRunFilter(
        tags=FlowRunFilterTags(all_=[tag]),
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=list(UNFINISHED))),
    )
    offset = 0
    while True:
        page = await client.read_flow_runs(flow_run_filter=chosen, limit=PAGE, offset=offset)
        for flow_run in page:
            yield flow_run
        if len(page) < PAGE:
            return
        offset += PAGE


def is_stopping(flow_run: FlowRun | None) -> bool:
    """Whether somebody told Prefect to cancel it."""
    return flow_run is not None and flow_run.state_type in (StateType.CANCELLING, StateType.CANCELLED)


def state_of(record: WorkflowRecord) -> State:
    """The state that Prefect should show for a workflow run that has ended."""
    line = str((record.error or {}).get("message") or "")
    match record.state:
        case "succeeded":
            return Completed(message="Its record says so.")
        case "failed":
            return Failed(message=line)
        case "cancelled":
            return Cancelled(message=line)
    return Crashed(message=line)


async def start_again(client: PrefectClient, flow_run_id: str, line: str) -> bool:
    """Put a flow run back on its pool, which then starts a process for it. False where it cannot be."""
    await close_task_runs(client, flow_run_id)
    return await _set(client, flow_run_id, AwaitingRetry(message=line))


async def close(client: PrefectClient, flow_run_id: str, state: State) -> bool:
    """End a flow run that has no process any more, and the task runs in it."""
    await close_task_runs(client, flow_run_id)
    return await _set(client, flow_run_id, state)


async def stop(client: PrefectClient, flow_run_id: str) -> str:
    """Have Prefect cancel a flow run that has not begun, through its pool if that has taken it. Returns the
    state it is in then."""
    wish: State = Cancelling(message="Cancelled by id.")
    answer = await client.set_flow_run_state(UUID(flow_run_id), wish)
    return str(answer.state.name if answer.state is not None else "Cancelling").lower()


async def close_task_runs(client: PrefectClient, flow_run_id: str) -> None:
    """End the task runs that a dead process left open."""
    left = await client.read_task_runs(
        flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[UUID(flow_run_id)])),
        task_run_filter=TaskRunFilter(
            state=TaskRunFilterState(type=TaskRunFilterStateType(any_=[StateType.PENDING, StateType.RUNNING]))
        ),
        limit=PAGE,
    )
    gone: State = Crashed(message="The process of its flow run has ended.")
    await asyncio.gather(*(client.set_task_run_state(task.id, gone, force=True) for task in left))


async def _set(client: PrefectClient, flow_run_id: str, state: State) -> bool:
    try:
        answer = await client.set_flow_run_state(UUID(flow_run_id), state, force=True)
    except ObjectNotFound:
        return False
    return str(answer.status.value) == "ACCEPT"
