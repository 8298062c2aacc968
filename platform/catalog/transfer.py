"""What belongs to an artifact or a workflow run, row by row: all that another catalog needs to answer for it.

Which rows those are, `transfer_keys` finds out; here they are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Column, Connection, select

from mutoscope.platform.catalog.artifacts import to_ref
from mutoscope.platform.catalog.bulk import Member
from mutoscope.platform.catalog.calls import Call, to_call
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.edges import to_run
from mutoscope.platform.catalog.graph import Edge
from mutoscope.platform.catalog.incidents import Incident, to_incident
from mutoscope.platform.catalog.keys import KEYS, by_keys
from mutoscope.platform.catalog.records import RunRecord
from mutoscope.platform.catalog.tables import (
    artifacts,
    calls,
    edges,
    incidents,
    members,
    runs,
    weight_aliases,
    weight_versions,
    workflow_runs,
)
from mutoscope.platform.catalog.transfer_keys import ClosureKeys, Roots, closure_of
from mutoscope.platform.catalog.weights import VERSION_COLUMNS, WeightVersion, points_now, to_version
from mutoscope.platform.catalog.workflows import WorkflowRecord, to_workflow_run
from mutoscope.platform.refs import ArtifactRef

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class KnownArtifact:
    """An artifact's row. `collected_at` is None while its bytes are in the store. Seconds since the epoch."""

    ref: ArtifactRef
    created_at: float
    collected_at: float | None


@dataclass(frozen=True, slots=True)
class Alias:
    """Where an alias of a component points now."""

    card: str
    component: str
    name: str
    version_id: str


class Extract:
    """The rows of a closure, table by table, in an order in which they can be inserted. Streams: a table is
    never in memory as a whole, its keys are."""

    def __init__(self, connection: Connection, keys: ClosureKeys) -> None:
        self._connection = connection
        self.closure = keys

    def artifacts(self) -> Iterator[KnownArtifact]:
        for row in self._rows(select(artifacts), artifacts.c.digest, self.closure.artifacts):
            yield to_known(row)

    def members(self) -> Iterator[Member]:
        for row in self._rows(select(members), members.c.container, self.closure.artifacts, members.c.path):
            yield Member(*row)

    def workflow_runs(self) -> Iterator[WorkflowRecord]:
        rows = self._rows(select(workflow_runs), workflow_runs.c.id, self.closure.workflow_runs)
        return iter(parents_first([to_workflow_run(row) for row in rows]))

    def runs(self) -> Iterator[RunRecord]:
        return map(to_run, self._rows(select(runs), runs.c.id, self.closure.runs))

    def edges(self) -> Iterator[Edge]:
        order = (edges.c.direction, edges.c.role, edges.c.ordinal)
        for row in self._rows(select(edges), edges.c.run_id, self.closure.runs, *order):
            yield Edge(*row)

    def calls(self) -> Iterator[Call]:
        """Of the runs, by the workflow runs; who else was served is no part of the closure."""
        for row in self._rows(select(calls), calls.c.run_id, self.closure.runs, calls.c.id):
            if row.workflow_run_id is None or row.workflow_run_id in self.closure.workflow_runs:
                yield to_call(row)

    def weight_versions(self) -> Iterator[WeightVersion]:
        rows = self._rows(select(*VERSION_COLUMNS), weight_versions.c.artifact_digest, self.closure.named)
        return iter(parents_first([to_version(row) for row in rows]))

    def weight_aliases(self) -> Iterator[Alias]:
        """Those that point into the closure now."""
        query = (
            select(
                weight_aliases.c.card,
                weight_aliases.c.component,
                weight_aliases.c.name,
                weight_aliases.c.version_id,
            )
            .join(weight_versions, weight_versions.c.id == weight_aliases.c.version_id)
            .where(points_now())
        )
        named = self._rows(query, weight_versions.c.artifact_digest, self.closure.named)
        yield from sorted((Alias(*row) for row in named), key=lambda a: (a.card, a.component, a.name))

    def incidents(self) -> Iterator[Incident]:
        """Those between runs of the closure."""
        for row in self._rows(select(incidents), incidents.c.run_id, self.closure.runs, incidents.c.id):
            if row.earlier_run_id is None or row.earlier_run_id in self.closure.runs:
                yield to_incident(row)

    def _rows(self, query: Any, key: Column[Any], keys: set[str], *order: Column[Any]) -> Iterator[Any]:
        return by_keys(self._connection, query.where(key.in_(KEYS)).order_by(key, *order), keys)


class Transfer:
    """`catalog.transfer`, the outgoing half."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @contextmanager
    def extract(self, roots: Roots) -> Iterator[Extract]:
        """The rows of the closure of `roots`, as of one moment. Roots the catalog does not know are passed
        over."""
        with self._database.read(at_leisure=True) as connection:
            lateral = not self._database.is_sqlite
            yield Extract(connection, closure_of(connection, roots, lateral=lateral))


def to_known(row: Any) -> KnownArtifact:
    """The record of a whole row of `artifacts`."""
    gone = row.collected_at or row.created_at
    return KnownArtifact(to_ref(row), row.created_at, None if row.state == "present" else gone)


def parents_first(found: list[T]) -> list[T]:
    """Records with `id` and `parent_id`, by id, each after its parent if that is among them."""
    by_id: dict[str, Any] = {record.id: record for record in found}  # type: ignore[attr-defined]
    ordered: dict[str, Any] = {}
    for start in sorted(by_id):
        path, at = [], start
        while at in by_id and at not in ordered and at not in path:
            path.append(at)
            at = by_id[at].parent_id
        ordered.update((id_, by_id[id_]) for id_ in reversed(path))
    return list(ordered.values())
