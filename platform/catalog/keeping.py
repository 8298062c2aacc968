"""What keeps an artifact, as conditions on rows.

An artifact stays while anything of this holds, in the words that `mutoscope gc --why` uses:

- a pin names it, or one with inputs names something that came from it;
- it is the bytes of weights to which an alias points now;
- a run in flight uses it, or a workflow under way made or used it, had it from the memo, or was given it;
- somebody holds a lease on it;
- no retention rule speaks of it, or one that does still keeps it;
- it is a member of a container that stays.

`stays` serves for a page of the catalog and for a few rows inside a transaction alike: what was true when the
catalog was scanned is asked again before anything is done.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    CTE,
    ColumnElement,
    CompoundSelect,
    Double,
    FromClause,
    Select,
    case,
    cast,
    exists,
    func,
    literal,
    or_,
    select,
    union,
)

from mutoscope.platform.catalog.retention import Policy, kept_by
from mutoscope.platform.catalog.tables import (
    artifacts,
    calls,
    edges,
    in_flight,
    in_force,
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
        leases.c.kind == "reader", leases.c.artifact_digest.is_not(None), in_force
    )


def workflows_under_way() -> Select[Any]:
    """Ids of running workflow runs and of everything they started, finished or not."""
    return select(_UNDER_WAY.c.id)


def _under_way() -> CTE:
    running = select(workflow_runs.c.id).where(under_way)
    tree = running.cte("under_way", recursive=True)
    return tree.union(select(workflow_runs.c.id).join(tree, workflow_runs.c.parent_id == tree.c.id))


_UNDER_WAY = _under_way()  # one, because a statement that names it twice computes it once
