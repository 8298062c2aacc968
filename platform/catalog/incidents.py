"""Incidents: what should not have happened, kept for a person to look at."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import select

from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.tables import incidents


@dataclass(frozen=True, slots=True)
class Incident:
    """A row of `incidents`. Kind ``determinism``: `run_id` made other bytes than `earlier_run_id` under an
    equal memo key; `details` holds both, slot to digest, as ``earlier`` and ``now``."""

    id: str
    kind: str
    memo_key: str | None
    run_id: str
    earlier_run_id: str | None
    details: Mapping[str, Any]
    created_at: float


_COLUMNS = tuple(incidents.c[field.name] for field in fields(Incident))


class Incidents:
    """`catalog.incidents`. Rows are written where the incident is noticed, in the same transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def list(self, limit: int = 50) -> builtins.list[Incident]:
        """Newest first."""
        query = select(*_COLUMNS).order_by(incidents.c.created_at.desc(), incidents.c.id.desc()).limit(limit)
        with self._database.read() as connection:
            return [Incident(*row) for row in connection.execute(query)]
