"""The walk itself: every node that can be reached from an artifact, as one recursive statement.

Walks alternate between artifacts and runs along `edges`. The UNION keeps a node once, however many paths lead
to it: cost grows with the edges of the closure, never with the number of paths, and a cycle (a run that hands
its input through) ends the walk like any node seen before. The database walks, so a chain of ten thousand
runs costs one round trip. Ids of runs (36 characters) and digests (64) share one column without clashing, and
their lengths tell them apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    CTE,
    ColumnElement,
    CompoundSelect,
    FromClause,
    Integer,
    Select,
    String,
    and_,
    bindparam,
    cast,
    func,
    literal,
    literal_column,
    not_,
    select,
    true,
    union_all,
)

from mutoscope.platform.catalog.records import WEIGHTS_ROLE
from mutoscope.platform.catalog.tables import edges, members


@dataclass(frozen=True, slots=True)
class Closure:
    """The ids of a closure, the root's among them, in no order. Lean: ids are all it reads.

    Attributes:
        artifacts: digests. runs: ids of runs.
        complete: False where the walk stopped at its limit.
    """

    root: str
    down: bool
    artifacts: tuple[str, ...]
    runs: tuple[str, ...]
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Way:
    """Which edges a walk follows.

    Attributes:
        down: towards what was made from the root, instead of what it came from.
        limited: only so far as `:hops` edges.
        history: beyond weights too. Upwards without it, weights end the walk: what trained them is their own
            story, not that of the picture they made.
        containers: downwards, from an artifact to the containers it is a member of.
    """

    down: bool
    limited: bool = False
    history: bool = True
    containers: bool = False


@dataclass(frozen=True, slots=True)
class _Step:
    """One way on from a node: the rows of `table` that `leads` from it, each to its node `beyond`."""

    table: FromClause
    leads: ColumnElement[bool]
    beyond: ColumnElement[str]


def is_run(node: str) -> bool:
    """Whether a node's id is a run's, and not a digest."""
    return len(node) == 36


@lru_cache
def ids(way: Way, *, lateral: bool) -> Select[Any]:
    """Ids of all nodes of the closure of `:root`.

    Args:
        lateral: spell the recursion for Postgres, which takes a single recursive term and joins sideways;
            SQLite takes a term for each kind of step, and knows no LATERAL.
    """
    reached = nodes(way, lateral=lateral)
    return select(reached.c.id).distinct() if way.limited else select(reached.c.id)


@lru_cache
def edges_within(way: Way, *, lateral: bool) -> CompoundSelect[Any]:
    """Every edge that leads on from a node of the closure of `:root`; see `ids`.

    Each edge leaves exactly one node: upwards an artifact leads to the runs that generated it and a run to
    what it used; downwards the other way round.
    """
    reached = nodes(way, lateral=lateral)
    if way.limited:
        # A node appears once for each distance at which it is reached, `:hops` times at most; folded into one
        # here. Those reached only at the last hop lead nowhere.
        reached = select(reached.c.id).where(reached.c.hop < _HOPS).distinct().cte("near")
    ends = (_out_of_artifact(reached.c.id, way.down), _out_of_run(reached.c.id, way.down))
    return union_all(*(select(edges).select_from(reached).join(edges, end) for end in ends))


def nodes(way: Way, *, lateral: bool) -> CTE:
    """The closure of `:root` as a common table expression of the column `id` (and `hop` if limited)."""
    start = cast(bindparam("root", type_=String), String).label("id")
    reached = select(start, *([literal(0).label("hop")] if way.limited else [])).cte(
        "reached", recursive=True
    )
    steps = _steps(way, reached.c.id)
    if not lateral:
        return reached.union(
            *(_term(way, reached, reached.join(step.table, step.leads), step.beyond) for step in steps)
        )
    onward = union_all(
        *(
            select(step.beyond.label("id")).select_from(step.table).where(step.leads).correlate(reached)
            for step in steps
        )
    ).lateral("onward")
    return reached.union(_term(way, reached, reached.join(onward, true()), onward.c.id))


def _term(way: Way, reached: CTE, source: FromClause, beyond: ColumnElement[str]) -> Select[Any]:
    if not way.limited:
        return select(beyond).select_from(source)
    return select(beyond, reached.c.hop + 1).select_from(source).where(reached.c.hop < _HOPS)


def _steps(way: Way, node: ColumnElement[str]) -> list[_Step]:
    from_run = _out_of_run(node, way.down)
    if not way.history and not way.down:
        from_run = and_(from_run, not_(OF_WEIGHTS))
    steps = [
        _Step(edges, _out_of_artifact(node, way.down), edges.c.run_id),
        _Step(edges, from_run, edges.c.artifact_digest),
    ]
    if way.containers:
        steps.append(_Step(members, members.c.artifact_digest == node, members.c.container))
    return steps


def _out_of_artifact(node: ColumnElement[str], down: bool) -> ColumnElement[bool]:
    direction = "used" if down else "generated"
    return and_(func.length(node) == _DIGEST, edges.c.artifact_digest == node, edges.c.direction == direction)


def _out_of_run(node: ColumnElement[str], down: bool) -> ColumnElement[bool]:
    direction = "generated" if down else "used"
    return and_(func.length(node) == _RUN_ID, edges.c.run_id == node, edges.c.direction == direction)


OF_WEIGHTS = edges.c.role.startswith(WEIGHTS_ROLE)
_HOPS = bindparam("hops", type_=Integer)
_RUN_ID: ColumnElement[int] = literal_column("36")
_DIGEST: ColumnElement[int] = literal_column("64")
