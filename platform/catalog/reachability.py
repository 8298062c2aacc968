"""What may go and what must stay, as conditions on rows: the collector's questions to the catalog.

An artifact stays while anything of this holds, in the words that `mutoscope gc --why` uses:

- a pin names it, or one with inputs names something that came from it;
- it is the bytes of weights to which an alias points now;
- a run in flight uses it, or a workflow under way made or used it, had it from the memo, or was given it;
- somebody holds a lease on it;
- no retention rule speaks of it, or one that does still keeps it;
- it is a member of a container that stays.

`scan` answers for the whole catalog, page by page, so that neither memory nor a transaction grows with it.
`stays` is the same as a condition for a few rows inside a transaction: what was true when the catalog was
scanned is asked again before anything is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    CTE,
    ColumnElement,
    CompoundSelect,
    Double,
    FromClause,
    Select,
    and_,
    case,
    cast,
    exists,
    func,
    literal,
    or_,
    select,
    union,
)

from mutoscope.platform.catalog.clock import now
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.retention import RetentionRule, kept_by
from mutoscope.platform.catalog.tables import (
    artifacts,
    calls,
    edges,
    in_flight,
    leases,
    members,
    pins,
    runs,
    under_way,
    weight_aliases,
    weight_versions,
    workflow_runs,
)
from mutoscope.platform.catalog.weights import points_now

_FOREVER = -1.0
"""A limit before which nothing was made."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What decides what is old: the rules, and the moment from which they count back. `horizon` is seconds
    since the epoch by the database's clock; nothing made or used after it is ever old."""

    rules: tuple[RetentionRule, ...]
    horizon: float

    @property
    def kinds(self) -> tuple[str, ...] | None:
        """The kinds some rule speaks of; None when one speaks of all."""
        named = {rule.kind for rule in self.rules if rule.kind is not None}
        return tuple(sorted(named)) if all(rule.kind is not None for rule in self.rules) else None

    @property
    def newest(self) -> float:
        """Nothing made after this can be old by any rule."""
        return self.horizon - min((rule.keep_seconds for rule in self.rules), default=0.0)


@dataclass(frozen=True, slots=True)
class Suspect:
    """An artifact that nothing keeps but, perhaps, a container it is a member of."""

    digest: str
    kind: str
    size: int


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a scan. `last` is where the next one begins; None when there is no more."""

    suspects: list[Suspect]
    looked_at: int
    last: str | None


@dataclass(frozen=True, slots=True)
class Recipe:
    """How an artifact could be made again: the run, and the seconds it took."""

    digest: str
    run_id: str
    seconds: float


class Reachability:
    """`catalog.reachability`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def now(self) -> float:
        """Seconds since the epoch by the database's clock."""
        with self._database.read() as connection:
            return float(connection.execute(select(now())).scalar_one())

    def count_present(self) -> int:
        """How many artifacts are not collected: what a scan has before it."""
        with self._database.read() as connection:
            query = select(func.count()).select_from(artifacts).where(artifacts.c.state == "present")
            return int(connection.execute(query).scalar_one())

    def scan(self, policy: Policy, after: str = "", limit: int = 10_000) -> Page:
        """Look at the next artifacts, in order of digest, that a rule speaks of and that are old enough.

        Args:
            after: `last` of the page before.
        """
        if not policy.rules:
            return Page([], 0, None)
        page = _page(policy, after, limit)
        query = select(page.c.digest, page.c.kind, page.c.size, case((stays(page), 0), else_=1)).order_by(
            page.c.digest
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        suspects = [Suspect(digest, kind, size) for digest, kind, size, suspected in rows if suspected]
        return Page(suspects, len(rows), rows[-1][0] if len(rows) == limit else None)

    def inputs_of_pins(self, size: int = 10_000) -> Iterator[list[str]]:
        """Everything that artifacts pinned with their inputs came from, themselves included, in parts."""
        reached = select(pins.c.artifact_digest.label("digest")).where(pins.c.with_inputs)
        walk = reached.cte("reached", recursive=True)
        made, used = edges.alias("made"), edges.alias("used_by_it")
        step = (
            select(used.c.artifact_digest)
            .select_from(walk)
            .join(made, and_(made.c.artifact_digest == walk.c.digest, made.c.direction == "generated"))
            .join(used, and_(used.c.run_id == made.c.run_id, used.c.direction == "used"))
        )
        with self._database.read() as connection:
            found = connection.execute(select(walk.union(step).c.digest).execution_options(yield_per=size))
            for part in found.scalars().partitions():
                yield list(part)

    def containers(self, digests: Sequence[str]) -> list[tuple[str, str]]:
        """(container, member) for each of the artifacts that is a member of a container not collected."""
        holder = artifacts.alias("holder")
        query = (
            select(members.c.container, members.c.artifact_digest)
            .distinct()
            .join(holder, holder.c.digest == members.c.container)
            .where(members.c.artifact_digest.in_(digests), holder.c.state == "present")
        )
        with self._database.read() as connection:
            return [(row[0], row[1]) for row in connection.execute(query)]

    def recipes(self, digests: Sequence[str]) -> list[Recipe]:
        """For each of the artifacts that a replay could make again, the cheapest recorded run that did.

        A replay needs the run's key parts, and everything the run used not collected yet.
        """
        used, needed = edges.alias("used_by_it"), artifacts.alias("needed")
        lacking = exists(
            select(literal(1))
            .select_from(used)
            .join(needed, needed.c.digest == used.c.artifact_digest)
            .where(used.c.run_id == runs.c.id, used.c.direction == "used", needed.c.state != "present")
        )
        query = (
            select(edges.c.artifact_digest, runs.c.id, runs.c.timings, runs.c.finished_at - runs.c.started_at)
            .join(runs, runs.c.id == edges.c.run_id)
            .where(
                edges.c.artifact_digest.in_(digests),
                edges.c.direction == "generated",
                runs.c.state == "succeeded",
                runs.c.kind == "engine",
                runs.c.key_parts.is_not(None),
                ~lacking,
            )
        )
        cheapest: dict[str, Recipe] = {}
        with self._database.read() as connection:
            for digest, run_id, timings, elapsed in connection.execute(query):
                found = Recipe(digest, run_id, sum(timings.values()) if timings else float(elapsed or 0.0))
                if digest not in cheapest or found.seconds < cheapest[digest].seconds:
                    cheapest[digest] = found
        return list(cheapest.values())


def _page(policy: Policy, after: str, limit: int) -> FromClause:
    """The next rows in order of digest, each with the moment before which it counts as old."""
    query = (
        select(
            artifacts.c.digest,
            artifacts.c.kind,
            artifacts.c.size,
            artifacts.c.created_at,
            old_before(policy).label("old_before"),
        )
        .where(artifacts.c.state == "present", artifacts.c.digest > after)
        .where(artifacts.c.created_at < policy.newest)
        .order_by(artifacts.c.digest)
        .limit(limit)
    )
    if policy.kinds is not None:
        query = query.where(artifacts.c.kind.in_(policy.kinds))
    return query.subquery("page")


def old_before(policy: Policy) -> ColumnElement[float]:
    """For a row of `artifacts`: made and used before this moment only, it is old by every rule that speaks of
    it; by the one that keeps it longest, for each workflow that made it or had it from the memo. `_FOREVER`
    where no rule speaks."""
    workflows = sorted({rule.workflow for rule in policy.rules if rule.workflow is not None})
    outside = _limit(policy, artifacts.c.kind, None)
    if not workflows:
        return outside
    per_workflow = [
        (workflow_runs.c.workflow == workflow, _limit(policy, artifacts.c.kind, workflow))
        for workflow in workflows
    ]
    limit = case(*per_workflow, else_=outside)
    made, had = (
        select(func.min(limit))
        .select_from(edges)
        .join(asked, asked.c[key] == edges.c.run_id)
        .outerjoin(workflow_runs, workflow_runs.c.id == asked.c.workflow_run_id)
        .where(edges.c.artifact_digest == artifacts.c.digest, edges.c.direction == "generated")
        .correlate(artifacts)
        .scalar_subquery()
        for asked, key in ((runs, "id"), (calls, "run_id"))
    )
    return func.coalesce(case((had < made, had), else_=made), outside)


def makers_of(digest: ColumnElement[str]) -> CompoundSelect[Any]:
    """The workflow runs (null: none) that had the artifact made, or had it from the memo."""
    made = (edges.c.artifact_digest == digest, edges.c.direction == "generated")
    return union(
        select(runs.c.workflow_run_id.label("workflow_run_id"))
        .join(edges, edges.c.run_id == runs.c.id)
        .where(*made),
        select(calls.c.workflow_run_id).join(edges, edges.c.run_id == calls.c.run_id).where(*made),
    )


def _limit(policy: Policy, kind: ColumnElement[str], workflow: str | None) -> ColumnElement[float]:
    def moment(kind_name: str) -> ColumnElement[float]:
        rule = kept_by(policy.rules, kind_name, workflow)
        return cast(literal(policy.horizon - rule.keep_seconds if rule else _FOREVER, Double), Double)

    named = sorted({rule.kind for rule in policy.rules if rule.kind is not None})
    # No kind has an empty name: what remains is what rules for every kind say.
    others = moment("")
    return case(*((kind == name, moment(name)) for name in named), else_=others) if named else others


def stays(subject: FromClause) -> ColumnElement[bool]:
    """Whether a row of `subject` (digest, created_at, old_before) is kept by anything but a container or a
    pin's closure."""
    return or_(
        subject.c.created_at >= subject.c.old_before,
        exists(
            select(literal(1))
            .select_from(edges)
            .join(runs, runs.c.id == edges.c.run_id)
            .where(
                edges.c.artifact_digest == subject.c.digest,
                or_(
                    in_flight,
                    runs.c.finished_at >= subject.c.old_before,
                    runs.c.workflow_run_id.in_(workflows_under_way()),
                ),
            )
        ),
        is_called(
            subject.c.digest,
            or_(
                calls.c.created_at >= subject.c.old_before,
                calls.c.workflow_run_id.in_(workflows_under_way()),
            ),
        ),
        is_wanted(subject.c.digest),
        subject.c.digest.in_(leased()),
    )


def is_wanted(digest: ColumnElement[str]) -> ColumnElement[bool]:
    """Whether something refers to the artifact by name: a pin, an alias, a run in flight. It must then be
    there, and if it was collected meanwhile, come back."""
    # Small however long the history grows: the index of the queue begins it.
    used = select(edges.c.artifact_digest).where(edges.c.run_id.in_(select(runs.c.id).where(in_flight)))
    return or_(
        digest.in_(select(pins.c.artifact_digest)),
        digest.in_(aliased()),
        digest.in_(used),
    )


def is_called(digest: ColumnElement[str], condition: ColumnElement[bool]) -> ColumnElement[bool]:
    """Whether somebody has asked for the artifact, and so may have had it from the memo, in a call of which
    `condition` holds."""
    return exists(
        select(literal(1))
        .select_from(edges)
        .join(calls, calls.c.run_id == edges.c.run_id)
        .where(edges.c.artifact_digest == digest, edges.c.direction == "generated", condition)
    )


def is_member(digest: ColumnElement[str]) -> ColumnElement[bool]:
    """Whether a container that is not collected has the artifact as a member."""
    holder = artifacts.alias("holder")
    return exists(
        select(literal(1))
        .select_from(members)
        .join(holder, holder.c.digest == members.c.container)
        .where(members.c.artifact_digest == digest, holder.c.state == "present")
    )


def aliased() -> Select[Any]:
    """Digests of the weights to which an alias points now."""
    return (
        select(weight_versions.c.artifact_digest)
        .join(weight_aliases, weight_aliases.c.version_id == weight_versions.c.id)
        .where(points_now())
    )


def leased() -> Select[Any]:
    """Digests that a reader's lease in force names."""
    return select(leases.c.artifact_digest).where(
        leases.c.kind == "reader", leases.c.artifact_digest.is_not(None), leases.c.expires_at >= now()
    )


def workflows_under_way() -> Select[Any]:
    """Ids of running workflow runs and of everything they started, finished or not."""
    return select(_UNDER_WAY.c.id)


def _under_way() -> CTE:
    running = select(workflow_runs.c.id).where(under_way)
    tree = running.cte("under_way", recursive=True)
    return tree.union(select(workflow_runs.c.id).join(tree, workflow_runs.c.parent_id == tree.c.id))


_UNDER_WAY = _under_way()  # one, because a statement that names it twice computes it once
