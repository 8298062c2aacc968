"""Approvals: what a workflow asks a person before it goes on, and who decided what."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import Row, select, update

from mutoscope.platform.catalog.clock import now
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.tables import approvals, undecided
from mutoscope.platform.ids import new_id

_WIDTH = 255
_SAME = [approvals.c.workflow_run_id, approvals.c.name]


@dataclass(frozen=True, slots=True)
class Approval:
    """A row of `approvals`. `subjects` are the digests of what is to be looked at; `approved` is None while
    nobody has decided; times are seconds since the epoch."""

    id: str
    workflow_run_id: str
    name: str
    question: str
    subjects: Sequence[str]
    asked_at: float
    decided_at: float | None
    approved: bool | None
    decided_by: str | None
    note: str | None


assert [field.name for field in fields(Approval)] == list(approvals.c.keys())


def _to_approval(row: Row[*tuple[Any, ...]]) -> Approval:
    return Approval(*row)


class Approvals:
    """`catalog.approvals`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def ask(self, workflow_run_id: str, name: str, question: str, subjects: Iterable[str]) -> Approval:
        """Put a question to people. A run that is executed again finds the one it asked, answer and all."""
        values = {
            "id": new_id(),
            "workflow_run_id": workflow_run_id,
            "name": name,
            "question": question[:_WIDTH],
            "subjects": list(subjects),
            "asked_at": now(),
        }
        with self._database.write() as connection:
            connection.execute(
                self._database.insert(approvals).values(**values).on_conflict_do_nothing(index_elements=_SAME)
            )
            return _to_approval(connection.execute(_one(workflow_run_id, name)).one())

    def decide(
        self, workflow_run_id: str, name: str, approved: bool, by: str, note: str | None = None
    ) -> Approval:
        """Decide, unless somebody has: the first decision stands, and is returned."""
        decision = {
            "decided_at": now(),
            "approved": approved,
            "decided_by": by[:_WIDTH],
            "note": note[:_WIDTH] if note else None,
        }
        this = (approvals.c.workflow_run_id == workflow_run_id, approvals.c.name == name, undecided)
        with self._database.write(news=True) as connection:
            connection.execute(update(approvals).where(*this).values(**decision))
            return _to_approval(connection.execute(_one(workflow_run_id, name)).one())

    def get(self, workflow_run_id: str, name: str) -> Approval | None:
        """That question of the run, or None if it was not asked."""
        with self._database.glance() as connection:
            row = connection.execute(_one(workflow_run_id, name)).one_or_none()
        return _to_approval(row) if row else None

    def of_run(self, workflow_run_id: str) -> builtins.list[Approval]:
        """What the run asked, in that order."""
        query = select(approvals).where(approvals.c.workflow_run_id == workflow_run_id)
        with self._database.glance() as connection:
            return [_to_approval(row) for row in connection.execute(query.order_by(approvals.c.asked_at))]

    def list(self, *, limit: int = 50, every: bool = False) -> builtins.list[Approval]:
        """What waits for a decision, the oldest first; with `every`, what was decided too, newest first."""
        order = approvals.c.asked_at.desc() if every else approvals.c.asked_at
        query = select(approvals).order_by(order).limit(limit)
        with self._database.glance() as connection:
            rows = connection.execute(query if every else query.where(undecided))
            return [_to_approval(row) for row in rows]


def _one(workflow_run_id: str, name: str) -> Any:
    return select(approvals).where(approvals.c.workflow_run_id == workflow_run_id, approvals.c.name == name)
