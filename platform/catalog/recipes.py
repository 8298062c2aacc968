"""How artifacts were made: of each, the run that made it first, and what that run used.

A recipe ends at weights, imports and uploads: what weights were trained from is not how the picture was made
with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from mutoscope.platform.catalog.closure import Way, edges_within
from mutoscope.platform.catalog.graph import ArtifactNode, Edge, read_artifacts, read_runs
from mutoscope.platform.catalog.records import RunRecord


@dataclass(frozen=True, slots=True)
class Recipes:
    """The recipes of some artifacts and of everything they were made from.

    Attributes:
        artifacts: by digest.
        runs: by id.
        makers: digest to the edge of the oldest run that generated it: that run decided what the bytes are,
            later ones made them again. Artifacts without a run on record are left out.
        used: run id to what it used, by role and ordinal.
    """

    artifacts: Mapping[str, ArtifactNode]
    runs: Mapping[str, RunRecord]
    makers: Mapping[str, Edge]
    used: Mapping[str, Sequence[Edge]]

    def maker(self, digest: str) -> RunRecord | None:
        """The run that made the artifact."""
        edge = self.makers.get(digest)
        return self.runs[edge.run_id] if edge else None


def read_recipes(connection: Connection, digests: Iterable[str], *, lateral: bool) -> Recipes:
    """The recipes of those of the digests that the catalog knows."""
    wanted = set(digests)
    statement = edges_within(Way(down=False, history=False), lateral=lateral)
    found: set[Edge] = set()
    for digest in wanted:
        found.update(Edge(*row) for row in connection.execute(statement, {"root": digest}))
    makers: dict[str, Edge] = {}
    used: dict[str, list[Edge]] = {}
    for edge in sorted(found):
        if edge.direction == "generated":
            makers.setdefault(edge.digest, edge)
        else:
            used.setdefault(edge.run_id, []).append(edge)
    return Recipes(
        artifacts=read_artifacts(connection, wanted | {edge.digest for edge in found}),
        runs=read_runs(connection, {edge.run_id for edge in found}),
        makers=makers,
        used=used,
    )
