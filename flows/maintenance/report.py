"""Telling of a scheduled run that failed: nobody watches those."""

from __future__ import annotations

import asyncio
from typing import Annotated

from prefect.logging import get_run_logger
from pydantic import Field

from mutoscope.platform.orchestration.failures import Failure, failure_of, tell
from mutoscope.platform.orchestration.runtime import get_runtime
from mutoscope.platform.orchestration.workflow import workflow

FlowRunId = Annotated[
    str,
    Field(
        title="Flow run",
        pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
        description="Id of the flow run that failed.",
    ),
]


@workflow("maintenance.report_failure")
async def report_failure(flow_run: FlowRunId) -> None:
    """Put a failed flow run on record as an incident, and tell the address in MUTOSCOPE_NOTICE_URL, if any.

    Started by an automation when a run that a schedule began has failed or crashed.
    """
    runtime = get_runtime()
    failure: Failure = await failure_of(flow_run)
    await asyncio.to_thread(runtime.catalog.incidents.record, "schedule", failure.details)
    get_run_logger().warning("%s", failure)
    if runtime.settings.notice_url:
        await tell(runtime.settings.notice_url, failure)
