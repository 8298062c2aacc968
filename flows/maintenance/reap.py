"""Order after a death: records that a killed process left open."""

from __future__ import annotations

from prefect.logging import get_run_logger

from mutoscope.platform.orchestration.reaper import reap_workflows
from mutoscope.platform.orchestration.workflow import workflow


@workflow("maintenance.reap")
async def reap() -> None:
    """Close the records of workflow runs whose process ended without doing so. Started by an automation."""
    for run_id in await reap_workflows():
        get_run_logger().info("workflow run %s was left open by its process", run_id)
