"""The lineage graph as records: artifacts and runs, and the edges between them, read for a set of edges.

Rows are read by primary key in chunks, whatever the size of the graph: no statement comes near a database's
limit of bound parameters.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

from sqlalchemy import Connection, func, select

from mutoscope.platform.catalog.artifacts import REF_COLUMNS, to_ref
from mutoscope.platform.catalog.edges import to_run
from mutoscope.platform.catalog.keys import KEYS, by_keys
from mutoscope.platform.catalog.records import RunRecord
from mutoscope.platform.catalog.tables import artifacts, members, runs, weight_versions
from mutoscope.platform.catalog.weights import VERSION_COLUMNS, WeightVersion, to_version
from mutoscope.platform.refs import ArtifactRef

Direction = Literal["used", "generated"]


@dataclass(frozen=True, slots=True, order=True)
class Edge:
    """A run used or generated an artifact in a role."""

    run_id: str
    direction: Direction
    role: str
    ordinal: int
    digest: str


def place_of(role: str, ordinal: int) -> str:
    """Where at a run an artifact stands: ``frame``, and the next one in that role ``frame[1]``."""
    return role if ordinal == 0 else f"{role}[{ordinal}]"


@dataclass(frozen=True, slots=True)
class Parts:
    """The members of a container (a component's manifest, say) in sum: how many, and their bytes."""

    count: int
    size: int


@dataclass(frozen=True, slots=True)
class ArtifactNode:
    """An artifact of the graph.

    Attributes:
        present: False for a tombstone: its bytes were collected, its row answers.
        versions: its names as weights, oldest first.
        parts: what it consists of, if it is a container.
    """

    ref: ArtifactRef
    present: bool = True
    versions: tuple[WeightVersion, ...] = ()
    parts: Parts | None = None


@dataclass(frozen=True, slots=True)
class LineageGraph:
    """A closure: every node once, and every edge between them.

    Attributes:
        root: digest the walk started from.
        down: whether it went towards what was made from the root.
    """

    root: str
    down: bool
    artifacts: Mapping[str, ArtifactNode]
    runs: Mapping[str, RunRecord]
    edges: tuple[Edge, ...]


def read_artifacts(connection: Connection, digests: Collection[str]) -> dict[str, ArtifactNode]:
    """The nodes of those digests that the catalog knows."""
    rows = list(by_keys(connection, _ARTIFACTS, digests))
    weights = {row.digest for row in rows if row.kind == "weights"}
    versions = read_versions(connection, {row.digest for row in rows if row.kind in _NAMED})
    parts = {row.container: Parts(row.parts, int(row.size)) for row in by_keys(connection, _MEMBERS, weights)}
    return {
        row.digest: ArtifactNode(
            to_ref(row), row.state == "present", versions.get(row.digest, ()), parts.get(row.digest)
        )
        for row in rows
    }


def read_versions(connection: Connection, digests: Collection[str]) -> dict[str, tuple[WeightVersion, ...]]:
    """Digest to every name those bytes have as weights, oldest first; the nameless are left out."""
    found = sorted((to_version(row) for row in by_keys(connection, _VERSIONS, digests)), key=_BY_AGE)
    named: dict[str, tuple[WeightVersion, ...]] = {}
    for version in found:
        named[version.digest] = (*named.get(version.digest, ()), version)
    return named


def read_runs(connection: Connection, run_ids: Collection[str]) -> dict[str, RunRecord]:
    """The runs of those ids."""
    return {row.id: to_run(row) for row in by_keys(connection, _RUNS, run_ids)}


_NAMED = ("weights", "json")
"""Kinds that can be a component of a card: its recipe is JSON."""
_ARTIFACTS = select(*REF_COLUMNS, artifacts.c.state).where(artifacts.c.digest.in_(KEYS))
_RUNS = select(runs).where(runs.c.id.in_(KEYS))
_VERSIONS = select(*VERSION_COLUMNS).where(weight_versions.c.artifact_digest.in_(KEYS))
_MEMBERS = (
    select(members.c.container, func.count().label("parts"), func.sum(artifacts.c.size).label("size"))
    .join(artifacts, artifacts.c.digest == members.c.artifact_digest)
    .where(members.c.container.in_(KEYS))
    .group_by(members.c.container)
)
_BY_AGE = attrgetter("created_at", "id")
