"""Workflow runs: one row per Prefect flow run of ours, so that the catalog can tell what asked for which run
even when Prefect's own database is gone. Who executes one, and for how long, is in `workflow_leases`."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import select, update

from mutoscope.platform.batches import batched
from mutoscope.platform.catalog.clock import now
from mutoscope.platform.catalog.keys import by_prefix
from mutoscope.platform.catalog.tables import workflow_runs
from mutoscope.platform.catalog.workflow_leases import WorkflowLeases
from mutoscope.platform.catalog.workflow_records import WorkflowRecord, WorkflowState, to_workflow_run
from mutoscope.platform.errors import LeaseLost, UnknownReference
from mutoscope.platform.refs import ArtifactRef

_BATCH = 500

__all__ = ["WorkflowRecord", "WorkflowState", "Workflows", "to_workflow_run"]


class Workflows(WorkflowLeases):
    """`catalog.workflows`."""

    def finish(
        self,
        run_id: str,
        state: WorkflowState,
        *,
        outputs: Mapping[str, ArtifactRef] | None = None,
        error: Mapping[str, Any] | None = None,
        holder: str | None = None,
    ) -> WorkflowRecord:
        """Close the run. A later word corrects an earlier one: a run marked crashed may yet complete.

        Args:
            holder: close it only while this process is the one that executes it.

        Raises:
            LeaseLost: another process has started it again; nothing is recorded.
        """
        digests = {name: ref.digest for name, ref in outputs.items()} if outputs is not None else None
        mine = [workflow_runs.c.holder == holder] if holder is not None else []
        with self._database.write() as connection:
            closed = connection.execute(
                update(workflow_runs)
                .where(workflow_runs.c.id == run_id, *mine)
                .values(
                    state=state,
                    outputs=digests,
                    error=dict(error) if error is not None else None,
                    finished_at=now(),
                    lease_expires_at=None,
                )
            ).rowcount
        record = self.get(run_id)
        if not closed:
            raise LeaseLost(
                f"workflow run {run_id} was started again by {record.holder}: what {holder} made of it is "
                "not its end"
            )
        return record

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

    def of_flow_runs(self, flow_run_ids: Iterable[str]) -> dict[str, WorkflowRecord]:
        """The newest workflow run opened by each of those Prefect flow runs, if any."""
        found: dict[str, WorkflowRecord] = {}
        with self._database.glance() as connection:
            for batch in batched(flow_run_ids, _BATCH):
                query = select(workflow_runs).where(workflow_runs.c.prefect_flow_run_id.in_(batch))
                for row in connection.execute(query.order_by(workflow_runs.c.created_at, workflow_runs.c.id)):
                    found[str(row.prefect_flow_run_id)] = to_workflow_run(row)
        return found

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
