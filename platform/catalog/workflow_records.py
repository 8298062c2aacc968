"""What the catalog hands out about workflow runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from sqlalchemy import Row

from mutoscope.platform.catalog.tables import workflow_runs

WorkflowState = Literal["running", "succeeded", "failed", "cancelled", "crashed"]


@dataclass(frozen=True, slots=True)
class WorkflowRecord:
    """A row of `workflow_runs`. `outputs` maps names to digests; times are seconds since the epoch.

    Attributes:
        holder: the process that executes it, or did last.
        lease_expires_at: until when that process is believed to live; None: nobody watches over it.
        attempt, max_attempts: times it was started, and may be.
        time_limit_seconds: of one attempt.
        prefect_deployment: what launched it, and can launch it again; None for a plain call.
    """

    id: str
    workflow: str
    parent_id: str | None
    prefect_flow_run_id: str | None
    parameters: Mapping[str, Any]
    state: WorkflowState
    outputs: Mapping[str, str] | None
    error: Mapping[str, Any] | None
    created_at: float
    finished_at: float | None
    holder: str | None = None
    lease_expires_at: float | None = None
    attempt: int = 1
    max_attempts: int = 1
    cancel_requested: bool = False
    time_limit_seconds: float | None = None
    prefect_deployment: str | None = None

    @property
    def may_start_again(self) -> bool:
        """Crashed, launched by something that can launch it again, wanted, and not out of attempts."""
        return (
            self.state == "crashed"
            and self.prefect_deployment is not None
            and not self.cancel_requested
            and self.attempt < self.max_attempts
        )


assert [field.name for field in fields(WorkflowRecord)] == list(workflow_runs.c.keys())


def to_workflow_run(row: Row[*tuple[Any, ...]]) -> WorkflowRecord:
    """The record of a whole row of `workflow_runs`."""
    return WorkflowRecord(*row)
