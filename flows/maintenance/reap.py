"""Order after a death, now: what the reconciler does by itself every second."""

from __future__ import annotations

from prefect.logging import get_run_logger

from mutoscope.platform.orchestration.reconciler import reconcile
from mutoscope.platform.orchestration.runtime import get_runtime
from mutoscope.platform.orchestration.workflow import workflow


@workflow("maintenance.reap")
async def reap() -> None:
    """Close or start again what dead processes left open. For an installation without a reconciler."""
    for line in await reconcile(get_runtime()):
        get_run_logger().info(line)
