"""Edges between runs and artifacts, and the columns of a run's record: the parts that several modules share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from sqlalchemy import Connection, Row, insert, select

from mutoscope.platform.catalog.artifacts import REF_COLUMNS, to_ref
from mutoscope.platform.catalog.records import RunRecord
from mutoscope.platform.catalog.tables import artifacts, edges, runs
from mutoscope.platform.refs import ArtifactRef

RUN_COLUMNS = tuple(runs.c[field.name] for field in fields(RunRecord))

IN_FLIGHT = ("queued", "running")


def to_run(row: Row[Any]) -> RunRecord:
    """The record of a row that holds `RUN_COLUMNS` in order."""
    return RunRecord(*row)


def roles(connection: Connection, run_id: str, direction: str) -> dict[str, ArtifactRef]:
    """The artifacts at a run's edges, by role, in the order the roles sort."""
    query = (
        select(edges.c.role, *REF_COLUMNS)
        .join(artifacts, artifacts.c.digest == edges.c.artifact_digest)
        .where(edges.c.run_id == run_id, edges.c.direction == direction)
        .order_by(edges.c.role, edges.c.ordinal)
    )
    return {row.role: to_ref(row) for row in connection.execute(query)}


def add_edges(connection: Connection, run_id: str, direction: str, digests: Mapping[str, str]) -> None:
    """Insert edges, role to digest. The artifact rows must be there."""
    if digests:
        connection.execute(
            insert(edges),
            [
                {"run_id": run_id, "direction": direction, "role": role, "ordinal": 0, "artifact_digest": digest}
                for role, digest in digests.items()
            ],
        )
