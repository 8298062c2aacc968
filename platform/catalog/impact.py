"""Everything downstream of an artifact, in numbers.

What did this bad reward model touch? Runs that used it, what they made, what was made from that, and the
weights trained on the way. Members count too: a damaged tensor reaches what its containers made.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    CTE,
    CompoundSelect,
    Connection,
    Float,
    Integer,
    Select,
    String,
    bindparam,
    case,
    cast,
    func,
    literal,
    null,
    select,
    union_all,
)

from mutoscope.platform.catalog.artifacts import REF_COLUMNS, to_ref
from mutoscope.platform.catalog.closure import Way, nodes
from mutoscope.platform.catalog.graph import ArtifactNode, read_artifacts
from mutoscope.platform.catalog.tables import (
    artifacts,
    edges,
    in_flight,
    runs,
    weight_aliases,
    weight_versions,
    workflow_runs,
)
from mutoscope.platform.catalog.weights import LIVE, VERSION_COLUMNS, WeightVersion, points_now, to_version
from mutoscope.platform.refs import ArtifactRef


@dataclass(frozen=True, slots=True)
class KindImpact:
    """Artifacts of one kind: how many, their bytes, and how many of them are tombstones by now."""

    kind: str
    count: int
    size: int
    collected: int


@dataclass(frozen=True, slots=True)
class WorkflowImpact:
    """Runs of one workflow (None: outside any), and the artifacts those runs made, each counted once."""

    workflow: str | None
    runs: int
    artifacts: int
    size: int


@dataclass(frozen=True, slots=True)
class Impact:
    """What is downstream of an artifact, itself not counted.

    Attributes:
        runs: that used it, or anything made from it. unfinished: of these, still queued or running.
        kinds, workflows: largest first.
        versions: weights made on the way, oldest first. live: those of them that new runs use now.
        first_at, last_at: when the first and the newest of the runs was created; seconds since the epoch.
    """

    root: ArtifactNode
    runs: int
    unfinished: int
    kinds: tuple[KindImpact, ...]
    workflows: tuple[WorkflowImpact, ...]
    versions: tuple[WeightVersion, ...]
    live: tuple[WeightVersion, ...]
    first_at: float | None
    last_at: float | None

    @property
    def count(self) -> int:
        """Artifacts of every kind."""
        return sum(kind.count for kind in self.kinds)

    @property
    def size(self) -> int:
        """Bytes of every kind, collected ones included."""
        return sum(kind.size for kind in self.kinds)


@dataclass(frozen=True, slots=True)
class Downstream:
    """An artifact downstream. `present` is False for a tombstone; `created_at`: seconds since the epoch."""

    ref: ArtifactRef
    present: bool
    created_at: float


def read(connection: Connection, digest: str, *, lateral: bool) -> Impact:
    """The impact of an artifact that the catalog knows."""
    sums = connection.execute(_sums(lateral), {"root": digest}).all()
    kinds = [
        KindImpact(row.name, row.artifacts, int(row.size), row.collected)
        for row in sums
        if row.part == "kind"
    ]
    made = {row.name: row for row in sums if row.part == "made"}
    worked = [row for row in sums if row.part == "runs"]
    workflows = [
        WorkflowImpact(
            row.name or None,
            row.runs,
            made[row.name].artifacts if row.name in made else 0,
            int(made[row.name].size) if row.name in made else 0,
        )
        for row in worked
    ]
    versions = [to_version(row) for row in connection.execute(_versions(lateral), {"root": digest})]
    live = set(connection.execute(_LIVE).scalars()) if versions else set()
    return Impact(
        root=read_artifacts(connection, (digest,))[digest],
        runs=sum(row.runs for row in worked),
        unfinished=sum(row.unfinished for row in worked),
        kinds=tuple(sorted(kinds, key=lambda one: (-one.size, one.kind))),
        workflows=tuple(sorted(workflows, key=lambda one: (-one.runs, one.workflow or ""))),
        versions=tuple(versions),
        live=tuple(version for version in versions if version.id in live),
        first_at=min((row.first_at for row in worked), default=None),
        last_at=max((row.last_at for row in worked), default=None),
    )


def artifacts_of(
    connection: Connection, digest: str, kinds: tuple[str, ...], limit: int, *, lateral: bool
) -> list[Downstream]:
    """The artifacts themselves, newest first."""
    query = _artifacts(lateral)
    if kinds:
        query = query.where(artifacts.c.kind.in_(kinds))
    rows = connection.execute(query.limit(limit), {"root": digest})
    return [Downstream(to_ref(row), row.state == "present", row.created_at) for row in rows]


def _downstream(lateral: bool) -> CTE:
    return nodes(Way(down=True, containers=True), lateral=lateral)


_ROOT = bindparam("root", type_=String)
_LIVE = select(weight_aliases.c.version_id).where(weight_aliases.c.name == LIVE, points_now())


@lru_cache
def _artifacts(lateral: bool) -> Select[Any]:
    reached = _downstream(lateral)
    return (
        select(*REF_COLUMNS, artifacts.c.state, artifacts.c.created_at)
        .join(reached, reached.c.id == artifacts.c.digest)
        .where(artifacts.c.digest != _ROOT)
        .order_by(artifacts.c.created_at.desc(), artifacts.c.digest)
    )


@lru_cache
def _versions(lateral: bool) -> Select[Any]:
    reached = _downstream(lateral)
    return (
        select(*VERSION_COLUMNS)
        .join(reached, reached.c.id == weight_versions.c.artifact_digest)
        .where(weight_versions.c.artifact_digest != _ROOT)
        .order_by(weight_versions.c.created_at, weight_versions.c.id)
    )


@lru_cache
def _sums(lateral: bool) -> CompoundSelect[Any]:
    """All counts in one statement over one walk."""
    reached = _downstream(lateral)
    workflow = func.coalesce(workflow_runs.c.workflow, "").label("workflow")
    of_run = runs.outerjoin(workflow_runs, workflow_runs.c.id == runs.c.workflow_run_id)
    collected = case((artifacts.c.state == "tombstone", 1), else_=0)
    by_kind = (
        _part("kind", artifacts.c.kind, count=func.count(), size=func.sum(artifacts.c.size),
              collected=func.sum(collected))
        .select_from(reached)
        .join(artifacts, artifacts.c.digest == reached.c.id)
        .where(reached.c.id != _ROOT)
        .group_by(artifacts.c.kind)
    )  # fmt: skip
    worked = (
        _part("runs", workflow, runs=func.count(), unfinished=func.sum(case((in_flight, 1), else_=0)),
              first_at=func.min(runs.c.created_at), last_at=func.max(runs.c.created_at))
        .select_from(reached)
        .join(of_run, runs.c.id == reached.c.id)
        .group_by(workflow)
    )  # fmt: skip
    outputs = (
        select(workflow, artifacts.c.digest, artifacts.c.size)
        .select_from(reached)
        .join(of_run, runs.c.id == reached.c.id)
        .join(edges, edges.c.run_id == runs.c.id)
        .join(artifacts, artifacts.c.digest == edges.c.artifact_digest)
        .where(edges.c.direction == "generated", artifacts.c.digest != _ROOT)
        .distinct()
        .subquery("outputs")
    )
    made = (
        _part("made", outputs.c.workflow, count=func.count(), size=func.sum(outputs.c.size))
        .select_from(outputs)
        .group_by(outputs.c.workflow)
    )
    return union_all(by_kind, worked, made)


def _part(part: str, name: Any, **sums: Any) -> Select[Any]:
    """One part of the statement, its columns those of every part."""
    zero, nothing = literal(0, Integer), cast(null(), Float)
    return select(
        literal(part, String).label("part"),
        name.label("name"),
        sums.get("runs", zero).label("runs"),
        sums.get("unfinished", zero).label("unfinished"),
        sums.get("count", zero).label("artifacts"),
        sums.get("size", zero).label("size"),
        sums.get("collected", zero).label("collected"),
        sums.get("first_at", nothing).label("first_at"),
        sums.get("last_at", nothing).label("last_at"),
    )
