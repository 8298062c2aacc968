"""Incidents: what should not have happened, kept for a person to look at."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select

from mutoscope.platform.catalog.clock import now
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.keys import by_prefix
from mutoscope.platform.catalog.tables import incidents
from mutoscope.platform.ids import new_id


@dataclass(frozen=True, slots=True)
class Incident:
    """A row of `incidents`.

    Kind ``determinism``: `run_id` made other bytes than `earlier_run_id` under an equal memo key; `details`
    holds both, slot to digest, as ``earlier`` and ``now``.

    Kinds ``damage`` and ``loss``: the stored bytes of an artifact were not what its name says, or were gone;
    `run_id` is the run that made it, if one is on record, and `details` holds its ``digest``.

    Kind ``schedule``: a workflow run that a schedule started has failed; `details` tells which, and why.
    """

    id: str
    kind: str
    memo_key: str | None
    run_id: str | None
    earlier_run_id: str | None
    details: Mapping[str, Any]
    created_at: float


assert [field.name for field in fields(Incident)] == list(incidents.c.keys())


def to_incident(row: Row[*tuple[Any, ...]]) -> Incident:
    """The record of a whole row of `incidents`."""
    return Incident(*row)


def add_incident(
    connection: Connection,
    kind: str,
    run_id: str | None,
    details: Mapping[str, Any],
    *,
    memo_key: str | None = None,
    earlier_run_id: str | None = None,
) -> None:
    """Record an incident in the transaction that notices it."""
    connection.execute(
        insert(incidents).values(
            id=new_id(),
            kind=kind,
            memo_key=memo_key,
            run_id=run_id,
            earlier_run_id=earlier_run_id,
            details=dict(details),
            created_at=now(),
        )
    )


class Incidents:
    """`catalog.incidents`. Rows are written where the incident is noticed, in the same transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, kind: str, details: Mapping[str, Any]) -> None:
        """Record an incident that is about no run's bytes."""
        with self._database.write() as connection:
            add_incident(connection, kind, None, details)

    def list(self, limit: int = 50, kind: str | None = None) -> builtins.list[Incident]:
        """Newest first; of one kind, if asked."""
        query = select(incidents).order_by(incidents.c.created_at.desc(), incidents.c.id.desc()).limit(limit)
        if kind is not None:
            query = query.where(incidents.c.kind == kind)
        with self._database.glance() as connection:
            return [to_incident(row) for row in connection.execute(query)]

    def find(self, prefix: str) -> Incident:
        """The incident whose id starts with `prefix`. Raises UnknownReference or AmbiguousReference."""
        row = by_prefix(self._database, incidents, prefix, "incident", "mutoscope incidents list")
        return to_incident(row)

    def of_run(self, run_id: str) -> str | None:
        """Id of the newest incident in which the run made other bytes than an earlier one."""
        query = (
            select(incidents.c.id)
            .where(incidents.c.run_id == run_id, incidents.c.kind == "determinism")
            .order_by(incidents.c.id.desc())
            .limit(1)
        )
        with self._database.glance() as connection:
            return connection.execute(query).scalar_one_or_none()

    def counts(self) -> dict[str, int]:
        """How many there are of each kind; kinds without any are left out."""
        query = select(incidents.c.kind, func.count()).group_by(incidents.c.kind).order_by(incidents.c.kind)
        with self._database.glance() as connection:
            return {row[0]: row[1] for row in connection.execute(query)}
