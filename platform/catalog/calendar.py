"""Workflow runs by day: what an index of pages is made of.

The day of a run is the day of its id: ids are UUIDv7 and begin with the milliseconds since the epoch, so a
day is a range of the primary key, and whoever knows an id knows its day (UTC) without asking anybody.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, func, select

from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.keys import KEYS, by_keys
from mutoscope.platform.catalog.tables import artifacts, workflow_runs
from mutoscope.platform.catalog.transfer import KnownArtifact, to_known
from mutoscope.platform.catalog.workflows import WorkflowRecord, to_workflow_run

_ENDED = workflow_runs.c.finished_at.is_not(None)


def moment_of(run_id: str) -> datetime:
    """When an id was drawn (UTC, to the millisecond, by the clock of who drew it)."""
    return datetime.fromtimestamp(int(run_id.replace("-", "")[:12], 16) / 1000, UTC)


def day_of(run_id: str) -> date:
    """The day of a run (UTC)."""
    return moment_of(run_id).date()


class Calendar:
    """`catalog.calendar`. Only runs that have ended are told of, but all are counted: the place of a run in
    its day never changes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def days(self) -> builtins.list[date]:
        """Days with workflow runs, newest first. One look-up in the primary key a day."""
        found: builtins.list[date] = []
        newest = select(func.max(workflow_runs.c.id))
        with self._database.read() as connection:
            last = connection.execute(newest).scalar()
            while last is not None:
                found.append(day_of(last))
                before = workflow_runs.c.id < _first_id(found[-1])
                last = connection.execute(newest.where(before)).scalar()
        return found

    def workflows(self, day: date) -> dict[str, int]:
        """The workflows of a day, with how many of their runs have ended; sorted by name."""
        query = (
            select(workflow_runs.c.workflow, func.count())
            .where(*_within(day), _ENDED)
            .group_by(workflow_runs.c.workflow)
            .order_by(workflow_runs.c.workflow)
        )
        with self._database.glance() as connection:
            return {row[0]: row[1] for row in connection.execute(query)}

    def count(self, day: date, workflow: str | None = None, *, before: str | None = None) -> int:
        """Runs of a day, of one workflow or (None) outermost ones of all; before an id, if that is given."""
        query = select(func.count()).where(*_scope(day, workflow))
        if before is not None:
            query = query.where(workflow_runs.c.id < before)
        with self._database.glance() as connection:
            return int(connection.execute(query).scalar_one())

    def list(
        self, day: date, workflow: str | None = None, *, offset: int = 0, limit: int = 200
    ) -> builtins.list[WorkflowRecord]:
        """Those of the runs number `offset` to `offset + limit` of a day that have ended, in order. Of one
        workflow, or (None) outermost ones of all."""
        place = (
            select(workflow_runs.c.id)
            .where(*_scope(day, workflow))
            .order_by(workflow_runs.c.id)
            .offset(offset)
            .limit(limit)
        )
        query = (
            select(workflow_runs).where(workflow_runs.c.id.in_(place), _ENDED).order_by(workflow_runs.c.id)
        )
        with self._database.glance() as connection:
            return [to_workflow_run(row) for row in connection.execute(query)]

    def ended(self, day: date) -> builtins.list[WorkflowRecord]:
        """Every run of a day that has ended, nested ones too, in order."""
        query = select(workflow_runs).where(*_within(day), _ENDED).order_by(workflow_runs.c.id)
        with self._database.glance() as connection:
            return [to_workflow_run(row) for row in connection.execute(query)]

    def artifacts(self, digests: Iterable[str]) -> dict[str, KnownArtifact]:
        """The artifacts by digest, and whether their bytes are there; those unknown are left out."""
        query = select(artifacts).where(artifacts.c.digest.in_(KEYS))
        with self._database.read() as connection:
            return {row.digest: to_known(row) for row in by_keys(connection, query, set(digests))}


def _within(day: date) -> tuple[ColumnElement[bool], ...]:
    return workflow_runs.c.id >= _first_id(day), workflow_runs.c.id < _first_id(day + timedelta(days=1))


def _scope(day: date, workflow: str | None) -> tuple[Any, ...]:
    of = workflow_runs.c.parent_id.is_(None) if workflow is None else workflow_runs.c.workflow == workflow
    return (*_within(day), of)


def _first_id(day: date) -> str:
    """Not above any id of that day, and above all earlier ones."""
    moment = datetime(day.year, day.month, day.day, tzinfo=UTC)
    digits = f"{int(moment.timestamp() * 1000):012x}"
    return f"{digits[:8]}-{digits[8:]}"
