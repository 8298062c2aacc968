"""Lineage: what an artifact came from, what came of it, and the questions people ask about that.

    closure     the walk, in SQL; ids only. breadth: the same by generations, for SQLite
    graph       the records of a closure
    uses        which weights made an artifact; made: what an artifact was used to make, page by page
    impact      everything downstream of an artifact, in numbers
    recipes     how an artifact was made, step by step; diff: what differs between two recipes
    tree        a graph as text; prov, openlineage: as documents of those standards

`Lineage` is the door to all of it. Every answer holds for tombstones too: rows outlive bytes.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from sqlalchemy import Connection, select

from mutoscope.platform.catalog import breadth, closure, impact, made, uses
from mutoscope.platform.catalog.closure import Closure, Way
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.diff import Diff, compare
from mutoscope.platform.catalog.graph import (
    ArtifactNode,
    Direction,
    Edge,
    LineageGraph,
    read_artifacts,
    read_runs,
)
from mutoscope.platform.catalog.impact import Downstream, Impact
from mutoscope.platform.catalog.keys import KEYS, by_keys
from mutoscope.platform.catalog.made import MadePage
from mutoscope.platform.catalog.recipes import read_recipes
from mutoscope.platform.catalog.tables import artifacts, members, workflow_runs
from mutoscope.platform.catalog.uses import WeightUse
from mutoscope.platform.errors import InvalidParameter, UnknownReference

__all__ = [
    "ArtifactNode",
    "Direction",
    "Edge",
    "Lineage",
    "LineageGraph",
    "WeightUse",
]


class Lineage:
    """`catalog.lineage`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lateral = not database.is_sqlite

    def up(self, digest: str, depth: int | None = None, *, history: bool = True) -> LineageGraph:
        """Everything the artifact came from: runs that generated it, what they used, and so on.

        Args:
            depth: generations of runs to go back; None for all.
            history: past the weights too: what they were trained from. Without it weights are where a walk
                ends, and the graph is how this artifact was made.

        Raises:
            UnknownReference: the catalog does not know the digest.
            InvalidParameter: `depth` is less than 1.
        """
        return self._graph(digest, depth, Way(down=False, limited=depth is not None, history=history))

    def down(self, digest: str, depth: int | None = None) -> LineageGraph:
        """Everything made from the artifact: runs that used it, what they generated, and so on. As `up`."""
        return self._graph(digest, depth, Way(down=True, limited=depth is not None))

    def closure(
        self,
        digest: str,
        *,
        down: bool = False,
        depth: int | None = None,
        containers: bool = False,
        limit: int | None = None,
    ) -> Closure:
        """The ids alone of what `up` or `down` would find: some fifty times as fast on large graphs.

        Args:
            containers: downwards, also what the artifact is a member of, and what came of that.
            limit: ids at which to stop walking, for a question that only asks whether there are more.

        Raises:
            UnknownReference, InvalidParameter: as `up`.
        """
        way = Way(down=down, limited=depth is not None, containers=containers)
        parameters = _parameters(digest, depth)
        with self._database.read() as connection:
            self._require(connection, digest)
            if self._database.is_sqlite and limit is None:
                digests, runs = breadth.reached(connection, digest, way, parameters.get("hops"))
                return Closure(digest, down, tuple(digests), tuple(runs))
            statement = closure.ids(way, lateral=self._lateral)
            asked = statement if limit is None else statement.limit(limit + 1)
            found = connection.execute(asked, parameters).scalars().all()
        complete = limit is None or len(found) <= limit
        runs = {node for node in found[:limit] if closure.is_run(node)}
        digests = set(found[:limit]) - runs
        return Closure(digest, down, tuple(digests), tuple(runs), complete)

    def containers(self, digest: str) -> tuple[str, ...]:
        """Digests of the containers that hold the artifact as a member, sorted."""
        query = select(members.c.container).where(members.c.artifact_digest == digest).distinct()
        with self._database.glance() as connection:
            return tuple(connection.execute(query.order_by(members.c.container)).scalars())

    def workflows(self, graph: LineageGraph) -> dict[str, str]:
        """Which workflow asked for the runs of a graph: id of the workflow run to the workflow's id."""
        asked = {run.workflow_run_id for run in graph.runs.values() if run.workflow_run_id}
        query = select(workflow_runs.c.id, workflow_runs.c.workflow)
        query = query.where(workflow_runs.c.id.in_(KEYS))
        with self._database.read() as connection:
            return {row.id: row.workflow for row in by_keys(connection, query, asked)}

    def weights_of(self, digest: str, depth: int | None = None, *, history: bool = False) -> list[WeightUse]:
        """The weights that made an artifact, through the whole chain of its inputs, with the run that used
        each; runs newest first.

        Args:
            depth: generations of runs to go back; 1 asks only for the runs that made the artifact itself.
            history: also the weights that went into making those weights, and so on back to the import.

        Raises:
            UnknownReference, InvalidParameter: as `up`.
        """
        way = Way(down=False, limited=depth is not None, history=history)
        # A run's uses stand from its first moment on and never change.
        with self._database.glance() as connection:
            found = uses.read(connection, way, _parameters(digest, depth), lateral=self._lateral)
            if not found:
                self._require(connection, digest)
        return found

    def made(
        self, digest: str, *, kinds: tuple[str, ...] = (), limit: int = 100, after: str | None = None
    ) -> MadePage:
        """What runs that used the artifact generated, newest run first, each artifact once.

        Args:
            kinds: only artifacts of these; all by default.
            limit: artifacts of a page. after: `next` of the page before.

        Raises:
            UnknownReference: as `up`. InvalidParameter: `limit` is less than 1, or `after` no cursor.
        """
        if limit < 1:
            raise InvalidParameter("limit", limit, "use 1 or more")
        with self._database.read() as connection:
            page = made.read(connection, digest, kinds, limit, after)
            if not page.makings:
                self._require(connection, digest)
        return page

    def impact(self, digest: str) -> Impact:
        """Everything downstream of the artifact, in numbers: for a bad input, weight version or reward model.

        Follows containers: what a tensor is part of counts as made from it. Raises as `up`.
        """
        with self._database.read() as connection:
            self._require(connection, digest)
            return impact.read(connection, digest, lateral=self._lateral)

    def downstream(self, digest: str, *, kinds: tuple[str, ...] = (), limit: int = 100) -> list[Downstream]:
        """The artifacts that `impact` counts, newest first, `limit` at most. Raises as `up`."""
        with self._database.read() as connection:
            self._require(connection, digest)
            return impact.artifacts_of(connection, digest, kinds, limit, lateral=self._lateral)

    def diff(self, left: str, right: str) -> Diff:
        """What differs between the recipes of two artifacts, given by digest, all the way down their inputs.

        Raises:
            UnknownReference: the catalog does not know one of them.
        """
        with self._database.read() as connection:
            recipes = read_recipes(connection, (left, right), lateral=self._lateral)
            for digest in (left, right):
                if digest not in recipes.artifacts:
                    raise _unknown(digest)
            return compare(connection, recipes, left, right)

    def _graph(self, digest: str, depth: int | None, way: Way) -> LineageGraph:
        statement = closure.edges_within(way, lateral=self._lateral)
        with self._database.read() as connection:
            found = [Edge(*row) for row in connection.execute(statement, _parameters(digest, depth))]
            nodes = read_artifacts(connection, {digest, *(edge.digest for edge in found)})
            records = read_runs(connection, {edge.run_id for edge in found})
        if digest not in nodes:
            raise _unknown(digest)
        found.sort(key=attrgetter("run_id", "direction", "role", "ordinal"))
        return LineageGraph(digest, way.down, nodes, records, tuple(found))

    def _require(self, connection: Connection, digest: str) -> None:
        known = select(artifacts.c.digest).where(artifacts.c.digest == digest)
        if connection.execute(known).first() is None:
            raise _unknown(digest)


def _parameters(digest: str, depth: int | None) -> dict[str, Any]:
    if depth is None:
        return {"root": digest}
    if depth < 1:
        raise InvalidParameter("depth", depth, "use 1 or more generations, or none for all")
    # A generation is two hops: to the run, and through it.
    return {"root": digest, "hops": 2 * depth}


def _unknown(digest: str) -> UnknownReference:
    return UnknownReference(f"no artifact has the digest {digest!r}: `mutoscope ls` lists what there is")
