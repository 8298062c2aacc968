"""Edges between runs and artifacts, and the record of a run's row: the parts that several modules share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from sqlalchemy import Connection, Row, bindparam, insert, select

from mutoscope.platform.catalog.artifacts import REF_COLUMNS, to_ref
from mutoscope.platform.catalog.keys import KEYS, by_keys
from mutoscope.platform.catalog.records import RunRecord
from mutoscope.platform.catalog.tables import artifacts, edges, runs
from mutoscope.platform.errors import UnknownReference
from mutoscope.platform.refs import ArtifactRef

assert [field.name for field in fields(RunRecord)] == list(runs.c.keys()), (
    "RunRecord is the row, in its order"
)

# Statements of the hot paths are built once: putting an expression together costs more than SQLite takes to
# run it.
_ROLES = (
    select(edges.c.role, *REF_COLUMNS)
    .join(artifacts, artifacts.c.digest == edges.c.artifact_digest)
    .where(edges.c.run_id == bindparam("run_id"), edges.c.direction == bindparam("direction"))
    .order_by(edges.c.role, edges.c.ordinal)
)
_ADD = insert(edges)
_KNOWN = select(artifacts.c.digest).where(artifacts.c.digest.in_(KEYS))


def to_run(row: Row[*tuple[Any, ...]]) -> RunRecord:
    """The record of a whole row of `runs`."""
    return RunRecord(*row)


def roles(connection: Connection, run_id: str, direction: str) -> dict[str, ArtifactRef]:
    """The artifacts at a run's edges, by role, in the order the roles sort."""
    rows = connection.execute(_ROLES, {"run_id": run_id, "direction": direction})
    return {row.role: to_ref(row) for row in rows}


def require_known(connection: Connection, digests: Mapping[str, str]) -> None:
    """Raise UnknownReference unless the catalog has a row for each of the artifacts, given by role."""
    known = {row.digest for row in by_keys(connection, _KNOWN, set(digests.values()))}
    for role, digest in digests.items():
        if digest not in known:
            raise UnknownReference(
                f"{role} is {digest[:12]}, which the catalog does not know: record the artifact first "
                "(for weights, `mutoscope weights import`)"
            )


def add_edges(connection: Connection, run_id: str, direction: str, digests: Mapping[str, str]) -> None:
    """Insert edges, role to digest. The artifact rows must be there."""
    if digests:
        connection.execute(
            _ADD,
            [
                {
                    "run_id": run_id,
                    "direction": direction,
                    "role": role,
                    "ordinal": 0,
                    "artifact_digest": digest,
                }
                for role, digest in digests.items()
            ],
        )
