"""Calls: who asked for a run, and what the memo answered.

A run has a row of its own only when it is computed; whoever is served from memo, or attaches to a run under
way, leaves a call. So a workflow's calls are all that it asked for, and a run's calls are all whom it served.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from sqlalchemy import Connection, Row, bindparam, func, insert, select

from mutoscope.platform.catalog.clock import now
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.records import Disposition
from mutoscope.platform.catalog.tables import calls, runs

_ADD = insert(calls).values(created_at=now()).returning(calls.c.id)


@dataclass(frozen=True, slots=True)
class PassedOver:
    """An equal run that had succeeded, and yet did not answer.

    Attributes:
        run_id: the oldest such run.
        reason: ``absent`` (outputs of it were not in the store), ``empty`` (it has none), or ``replay`` (the
            caller wanted it computed anew).
        absent: digests of the outputs that were not there.
    """

    run_id: str
    reason: Literal["absent", "empty", "replay"]
    absent: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As the column keeps it."""
        return {"run": self.run_id, "reason": self.reason, "absent": list(self.absent)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PassedOver:
        return cls(values["run"], values["reason"], tuple(values["absent"]))


@dataclass(frozen=True, slots=True)
class Call:
    """A row of `calls`. `workflow_run_id` is None for a call outside any workflow; `passed_over` is set where
    a new run was queued although an equal one had succeeded. `left_at` is when its caller stopped waiting for
    a run that had not ended; None if it did not."""

    id: int
    run_id: str
    workflow_run_id: str | None
    disposition: Disposition
    passed_over: PassedOver | None
    created_at: float
    left_at: float | None = None


def add_call(
    connection: Connection,
    run_id: str,
    workflow_run_id: str | None,
    disposition: Disposition,
    passed_over: PassedOver | None = None,
) -> int:
    """Note a call in the transaction that answers it. Returns its id."""
    added = connection.execute(
        _ADD,
        {
            "run_id": run_id,
            "workflow_run_id": workflow_run_id,
            "disposition": disposition,
            "passed_over": passed_over.to_dict() if passed_over else None,
        },
    )
    return int(added.scalar_one())


class Calls:
    """`catalog.calls`. Rows are written by `catalog.runs.enqueue`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of_run(self, run_id: str, limit: int = 50) -> list[Call]:
        """Those that the run answered, oldest first: the first is the one it was queued for."""
        query = _SELECT.where(calls.c.run_id == run_id).limit(limit)
        with self._database.glance() as connection:
            return [to_call(row) for row in connection.execute(query)]

    def of_workflow(self, workflow_run_id: str, limit: int = 1000) -> list[Call]:
        """Those that the workflow run made itself, in order."""
        query = _SELECT.where(calls.c.workflow_run_id == workflow_run_id).limit(limit)
        with self._database.glance() as connection:
            return [to_call(row) for row in connection.execute(query)]

    def asked(self, workflow_run_id: str, limit: int = 500) -> dict[str, Disposition]:
        """Ids of the runs that the workflow run asked for, in order, and how the first call for each was
        answered. A run that no call tells of counts as new: work recorded when it was done."""
        query = (
            select(runs.c.id)
            .where(runs.c.workflow_run_id == workflow_run_id)
            .order_by(runs.c.created_at, runs.c.id)
            .limit(limit)
        )
        answers: dict[str, Disposition] = {}
        for call in self.of_workflow(workflow_run_id, limit):
            answers.setdefault(call.run_id, call.disposition)
        with self._database.glance() as connection:
            for run_id in connection.execute(query).scalars():
                answers.setdefault(run_id, "new")
        return answers

    def counts(self, run_id: str) -> dict[Disposition, int]:
        """How many calls the run answered, by disposition."""
        with self._database.glance() as connection:
            return {row[0]: row[1] for row in connection.execute(_COUNTS, {"run": run_id})}


assert [field.name for field in fields(Call)] == list(calls.c.keys())

_SELECT = select(calls).order_by(calls.c.id)
_COUNTS = (
    select(calls.c.disposition, func.count())
    .where(calls.c.run_id == bindparam("run"))
    .group_by(calls.c.disposition)
)


def to_call(row: Row[*tuple[Any, ...]]) -> Call:
    """The record of a whole row of `calls`."""
    id_, run_id, workflow_run_id, disposition, passed_over, created_at, left_at = row
    over = PassedOver.from_dict(passed_over) if passed_over else None
    return Call(id_, run_id, workflow_run_id, disposition, over, created_at, left_at)
