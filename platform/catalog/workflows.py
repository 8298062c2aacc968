"""Workflow runs: one row per Prefect flow run of ours, so that the catalog can tell what asked for which run
even when Prefect's own database is gone."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from sqlalchemy import Row, insert, select, update

from mutoscope.platform.catalog.clock import now
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.keys import by_prefix
from mutoscope.platform.catalog.tables import workflow_runs
from mutoscope.platform.errors import UnknownReference
from mutoscope.platform.ids import new_id
from mutoscope.platform.refs import ArtifactRef

WorkflowState = Literal["running", "succeeded", "failed", "cancelled", "crashed"]


@dataclass(frozen=True, slots=True)
class WorkflowRecord:
    """A row of `workflow_runs`. `outputs` maps names to digests; times are seconds since the epoch."""

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


assert [field.name for field in fields(WorkflowRecord)] == list(workflow_runs.c.keys())


def to_workflow_run(row: Row[*tuple[Any, ...]]) -> WorkflowRecord:
    """The record of a whole row of `workflow_runs`."""
    return WorkflowRecord(*row)


class Workflows:
    """`catalog.workflows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def start(
        self,
        workflow: str,
        parameters: Mapping[str, Any],
        parent_id: str | None = None,
        prefect_flow_run_id: str | None = None,
    ) -> str:
        """Open a workflow run, state ``running``; returns its id."""
        run_id = new_id()
        with self._database.write() as connection:
            connection.execute(
                insert(workflow_runs).values(
                    id=run_id,
                    workflow=workflow,
                    parent_id=parent_id,
                    prefect_flow_run_id=prefect_flow_run_id,
                    parameters=dict(parameters),
                    state="running",
                    created_at=now(),
                )
            )
        return run_id

    def finish(
        self,
        run_id: str,
        state: WorkflowState,
        *,
        outputs: Mapping[str, ArtifactRef] | None = None,
        error: Mapping[str, Any] | None = None,
    ) -> WorkflowRecord:
        """Close the run. A later word corrects an earlier one: a run marked crashed may yet complete."""
        digests = {name: ref.digest for name, ref in outputs.items()} if outputs is not None else None
        with self._database.write() as connection:
            connection.execute(
                update(workflow_runs)
                .where(workflow_runs.c.id == run_id)
                .values(
                    state=state,
                    outputs=digests,
                    error=dict(error) if error is not None else None,
                    finished_at=now(),
                )
            )
        return self.get(run_id)

    def get(self, run_id: str) -> WorkflowRecord:
        """Raises UnknownReference."""
        with self._database.glance() as connection:
            row = connection.execute(select(workflow_runs).where(workflow_runs.c.id == run_id)).one_or_none()
        if row is None:
            raise UnknownReference(f"no workflow run has the id {run_id!r}: `mutoscope ls` lists them")
        return to_workflow_run(row)

    def find(self, prefix: str) -> WorkflowRecord:
        """The workflow run whose id starts with `prefix`. Raises UnknownReference or AmbiguousReference."""
        row = by_prefix(self._database, workflow_runs, prefix, "workflow run", "mutoscope ls")
        return to_workflow_run(row)

    def find_by_flow_run(self, prefect_flow_run_id: str) -> WorkflowRecord | None:
        """The newest workflow run opened by that Prefect flow run."""
        query = (
            select(workflow_runs)
            .where(workflow_runs.c.prefect_flow_run_id == prefect_flow_run_id)
            .order_by(workflow_runs.c.created_at.desc(), workflow_runs.c.id.desc())
            .limit(1)
        )
        with self._database.glance() as connection:
            row = connection.execute(query).one_or_none()
        return to_workflow_run(row) if row else None

    def list(
        self,
        *,
        workflow: str | None = None,
        state: str | None = None,
        parent_id: str | None = None,
        limit: int = 50,
    ) -> builtins.list[WorkflowRecord]:
        """Newest first, narrowed by what is given."""
        given = {
            workflow_runs.c.workflow: workflow,
            workflow_runs.c.state: state,
            workflow_runs.c.parent_id: parent_id,
        }
        query = select(workflow_runs).order_by(workflow_runs.c.created_at.desc(), workflow_runs.c.id.desc())
        query = query.where(*(column == value for column, value in given.items() if value is not None))
        with self._database.glance() as connection:
            return [to_workflow_run(row) for row in connection.execute(query.limit(limit))]
