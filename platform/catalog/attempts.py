"""Attempts: each time a run was taken and did not succeed, and why.

A run's own row tells of its last attempt alone; these tell what came before, so that a run which failed three
times on three workers can be told from one that failed once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from sqlalchemy import Connection, bindparam, insert, select

from mutoscope.platform.catalog.clock import now
from mutoscope.platform.catalog.records import RunRecord
from mutoscope.platform.catalog.tables import attempts

Outcome = Literal["failed", "expired", "released", "cancelled", "timed_out"]
"""How an attempt ended: by an error, its worker went silent, its worker handed it back, somebody cancelled
the run, or it took longer than the run allows."""


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """A row of `attempts`. Times are seconds since the epoch by the database's clock."""

    id: int
    run_id: str
    attempt: int
    worker: str
    started_at: float
    ended_at: float
    outcome: Outcome
    error: Mapping[str, Any] | None


assert [field.name for field in fields(AttemptRecord)] == list(attempts.c.keys())

_ADD = insert(attempts).values(ended_at=now())
_OF_RUN = select(attempts).where(attempts.c.run_id == bindparam("run")).order_by(attempts.c.id)


def add_attempt(
    connection: Connection, run: RunRecord, outcome: Outcome, error: Mapping[str, Any] | None = None
) -> None:
    """Note how the attempt of a run that is running ended, in the transaction that ends it."""
    connection.execute(
        _ADD,
        {
            "run_id": run.id,
            "attempt": run.attempt,
            "worker": run.worker,
            "started_at": run.started_at,
            "outcome": outcome,
            "error": dict(error) if error is not None else None,
        },
    )


def attempts_of(connection: Connection, run_id: str) -> list[AttemptRecord]:
    """Oldest first."""
    return [AttemptRecord(*row) for row in connection.execute(_OF_RUN, {"run": run_id})]
