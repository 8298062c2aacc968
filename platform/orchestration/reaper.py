"""Closing the records of workflow runs whose process died before it could.

A killed flow process leaves its row "running" for ever. Prefect's own row says when that is over: the
heartbeat automation marks it Crashed. The mark set here is not final either; should the process live after
all, its own word replaces it. Engine runs are left alone: they finish, and a rerun of the workflow finds them
in the memo.
"""

from __future__ import annotations

import asyncio
from uuid import UUID

from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId

from mutoscope.platform.catalog.workflows import WorkflowState
from mutoscope.platform.orchestration.pages import RUN_PAGES
from mutoscope.platform.orchestration.runtime import get_runtime
from mutoscope.platform.orchestration.server import prefect_client

_BATCH = 200


async def reap_workflows() -> tuple[str, ...]:
    """Mark running rows whose flow run has ended; returns their ids.

    A flow that ends by itself closes its row before Prefect hears of the end, so an open row under an ended
    flow run means that nobody is left to close it.

    Raises:
        ServerUnavailable: no Prefect server answers.
    """
    runtime = get_runtime()
    workflows = runtime.catalog.workflows
    running = await asyncio.to_thread(workflows.list, state="running", limit=_BATCH)
    by_flow_run = {UUID(row.prefect_flow_run_id): row for row in running if row.prefect_flow_run_id}
    if not by_flow_run:
        return ()
    async with prefect_client() as client:
        chosen = FlowRunFilter(id=FlowRunFilterId(any_=list(by_flow_run)))
        flow_runs = await client.read_flow_runs(flow_run_filter=chosen, limit=_BATCH)
    closed = []
    for flow_run in flow_runs:
        state = flow_run.state
        if state is None or not state.is_final():
            continue
        row = by_flow_run[flow_run.id]
        ended: WorkflowState = "cancelled" if state.is_cancelled() else "crashed"
        line = state.message or f"its flow run ended as {state.name}"
        await asyncio.to_thread(
            workflows.finish, row.id, ended, error={"type": "ProcessDied", "message": line}
        )
        RUN_PAGES.add(runtime, row.id)
        closed.append(row.id)
    return tuple(closed)
