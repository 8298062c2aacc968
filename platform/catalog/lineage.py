"""Lineage: what an artifact came from, and what came from it.

Walks alternate between artifacts and runs along `edges`. Each walk is one recursive query whose UNION keeps a
node once, however many paths lead to it: cost grows with the edges of the closure, never with the number of
paths, and a cycle (a run that hands its input through) ends the walk like any node seen before. Ids of runs
(36 characters) and digests (64) share one column without clashing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    FromClause,
    Integer,
    Row,
    Select,
    String,
    and_,
    bindparam,
    case,
    cast,
    literal,
    or_,
    select,
)

from mutoscope.platform.catalog.artifacts import to_ref
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.edges import to_run
from mutoscope.platform.catalog.records import WEIGHTS_ROLE, RunRecord
from mutoscope.platform.catalog.tables import artifacts, edges, runs, weight_versions
from mutoscope.platform.catalog.weights import VERSION_COLUMNS, WeightVersion, to_version
from mutoscope.platform.errors import InvalidParameter, UnknownReference
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


@dataclass(frozen=True, slots=True)
class ArtifactNode:
    """An artifact of the graph. `present` is False for a tombstone; `versions` are its names as weights."""

    ref: ArtifactRef
    present: bool = True
    versions: tuple[WeightVersion, ...] = ()


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


@dataclass(frozen=True, slots=True)
class WeightUse:
    """A run's pinned component: which bytes, and every name they have."""

    run_id: str
    card: str | None
    component: str
    digest: str
    versions: tuple[WeightVersion, ...]


class Lineage:
    """`catalog.lineage`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def up(self, digest: str, depth: int | None = None) -> LineageGraph:
        """Everything the artifact came from: runs that generated it, what they used, and so on.

        Args:
            depth: generations of runs to go back; None for all.

        Raises:
            UnknownReference: the catalog does not know the digest.
        """
        return self._walk(digest, depth, down=False)

    def down(self, digest: str, depth: int | None = None) -> LineageGraph:
        """Everything made from the artifact: runs that used it, what they generated, and so on. As `up`."""
        return self._walk(digest, depth, down=True)

    def made_directly(self, digest: str) -> list[tuple[ArtifactRef, RunRecord]]:
        """What runs that used the artifact generated, each with its run; newest first. Raises as `up`."""
        graph = self.down(digest, depth=1)
        made = {edge.digest: edge.run_id for edge in graph.edges if edge.direction == "generated"}
        newest = sorted(made, key=lambda found: (made[found], found), reverse=True)
        return [(graph.artifacts[found].ref, graph.runs[made[found]]) for found in newest]

    def weights_of(self, digest: str, depth: int | None = None) -> list[WeightUse]:
        """The weights behind an artifact: of every run it came from, in the order the runs were created,
        newest first. `depth` 1 asks only for the runs that made the artifact itself."""
        graph = self.up(digest, depth)
        uses = [
            edge for edge in graph.edges if edge.direction == "used" and edge.role.startswith(WEIGHTS_ROLE)
        ]
        uses.sort(key=lambda edge: edge.role)
        uses.sort(key=lambda edge: edge.run_id, reverse=True)
        return [
            WeightUse(
                run_id=edge.run_id,
                card=graph.runs[edge.run_id].card,
                component=edge.role.removeprefix(WEIGHTS_ROLE),
                digest=edge.digest,
                versions=graph.artifacts[edge.digest].versions,
            )
            for edge in uses
        ]

    def _walk(self, digest: str, depth: int | None, *, down: bool) -> LineageGraph:
        if depth is not None and depth < 1:
            raise InvalidParameter("depth", depth, "use 1 or more generations, or none for all")
        # A generation is two hops: to the run, and through it.
        parameters = {"root": digest} if depth is None else {"root": digest, "hops": 2 * depth}
        with self._database.read() as connection:
            found = [Edge(*row) for row in connection.execute(_WALKS[down, depth is not None], parameters)]
            digests = {digest, *(edge.digest for edge in found)}
            nodes = _artifact_nodes(connection, digests)
            records = _run_records(connection, {edge.run_id for edge in found})
        if digest not in nodes:
            raise UnknownReference(
                f"no artifact has the digest {digest!r}: `mutoscope ls` lists what there is"
            )
        found.sort(key=attrgetter("run_id", "direction", "role", "ordinal"))
        return LineageGraph(digest, down, nodes, records, tuple(found))


def _artifact_nodes(connection: Connection, digests: set[str]) -> dict[str, ArtifactNode]:
    rows = _by_keys(connection, _ARTIFACTS, digests)
    weights = {row.digest for row in rows if row.kind == "weights"}
    versions: dict[str, list[WeightVersion]] = {}
    for version in sorted((to_version(row) for row in _by_keys(connection, _VERSIONS, weights)), key=_BY_AGE):
        versions.setdefault(version.digest, []).append(version)
    return {
        row.digest: ArtifactNode(to_ref(row), row.state == "present", tuple(versions.get(row.digest, ())))
        for row in rows
    }


def _run_records(connection: Connection, run_ids: set[str]) -> dict[str, RunRecord]:
    return {row.id: to_run(row) for row in _by_keys(connection, _RUNS, run_ids)}


def _by_keys(
    connection: Connection, statement: Select[*tuple[Any, ...]], keys: set[str]
) -> list[Row[*tuple[Any, ...]]]:
    """Rows by primary key, in chunks that stay below every database's limit of parameters."""
    ordered = sorted(keys)
    return [
        row
        for start in range(0, len(ordered), _CHUNK)
        for row in connection.execute(statement, {"keys": ordered[start : start + _CHUNK]})
    ]


def _leaving(node: ColumnElement[str], *, down: bool) -> ColumnElement[bool]:
    """The edges that lead on from a node. Each edge leaves exactly one: upwards an artifact leads to the runs
    that generated it and a run to what it used; downwards the other way round."""
    from_artifact, from_run = ("used", "generated") if down else ("generated", "used")
    return or_(
        and_(edges.c.artifact_digest == node, edges.c.direction == from_artifact),
        and_(edges.c.run_id == node, edges.c.direction == from_run),
    )


def _walk(*, down: bool, limited: bool) -> Select[*tuple[Any, ...]]:
    """Every edge of the closure of `:root`; limited: of those within `:hops` edges of it."""
    from_artifact = "used" if down else "generated"
    beyond = case((edges.c.direction == from_artifact, edges.c.run_id), else_=edges.c.artifact_digest)
    start = cast(bindparam("root", type_=String), String).label("id")
    if not limited:
        reached = select(start).cte("reached", recursive=True)
        step = select(beyond).select_from(reached).join(edges, _leaving(reached.c.id, down=down))
        nodes: FromClause = reached.union(step)
    else:
        hops = bindparam("hops", type_=Integer)
        near = select(start, literal(0).label("hop")).cte("near", recursive=True)
        step = (
            select(beyond, near.c.hop + 1)
            .select_from(near)
            .join(edges, _leaving(near.c.id, down=down))
            .where(near.c.hop < hops)
        )
        near = near.union(step)
        # A node appears once for each distance at which it is reached, `:hops` times at most; folded into one
        # here. Those reached only at the last hop lead nowhere.
        nodes = select(near.c.id).where(near.c.hop < hops).distinct().subquery("reached")
    return select(edges).select_from(nodes).join(edges, _leaving(nodes.c.id, down=down))


# Built once; (down, limited) chooses.
_WALKS = {
    (down, limited): _walk(down=down, limited=limited) for down in (False, True) for limited in (False, True)
}
_KEYS: BindParameter[str] = bindparam("keys", expanding=True)
_ARTIFACTS = select(artifacts).where(artifacts.c.digest.in_(_KEYS))
_RUNS = select(runs).where(runs.c.id.in_(_KEYS))
_VERSIONS = select(*VERSION_COLUMNS).where(weight_versions.c.artifact_digest.in_(_KEYS))
_BY_AGE = attrgetter("created_at", "id")
_CHUNK = 1000
