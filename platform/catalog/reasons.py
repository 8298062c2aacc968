"""Why an artifact is kept, in words: each root that reaches it, and how."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter

from sqlalchemy import Connection, func, literal, select, union

from mutoscope.platform.catalog.clock import now
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.given import mentions
from mutoscope.platform.catalog.keeping import makers_of, workflows_under_way
from mutoscope.platform.catalog.retention import RetentionRule, kept_by
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
from mutoscope.platform.durations import spell_duration
from mutoscope.platform.errors import UnknownReference
from mutoscope.platform.refs import SHOWN_DIGITS

_SHOWN = 5
"""Runs named for one reason; more add nothing."""
_DEPTH = 8
"""Containers within containers that are followed; ours are two deep."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How an artifact stands with the collector.

    Attributes:
        state: ``present`` or ``tombstone``.
        reasons: why it is kept, one line each; empty: the next collection takes it.
        collected_at, purged_at: of a tombstone, as in the table.
    """

    state: str
    reasons: tuple[str, ...]
    collected_at: float | None
    purged_at: float | None


class Reasons:
    """`catalog.reasons`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, digest: str, rules: tuple[RetentionRule, ...], _depth: int = 0) -> Standing:
        """Everything that keeps the artifact now.

        Raises:
            UnknownReference: the catalog does not know the digest.
        """
        with self._database.read() as connection:
            row = connection.execute(select(artifacts).where(artifacts.c.digest == digest)).one_or_none()
            if row is None:
                raise UnknownReference(f"no artifact has the digest {digest!r}: `mutoscope ls` lists them")
            found = [*_pinned(connection, digest), *_aliases(connection, digest)]
            found += [*_in_flight(connection, digest), *_leased(connection, digest)]
            if row.state == "present":
                found += _rules(connection, rules, digest, row.kind, row.created_at)
            holders = _holders(connection, digest)
        for container, kind, path in holders[: _SHOWN if _depth < _DEPTH else 0]:
            standing = self.of(container, rules, _depth + 1)
            if standing.state == "present" and standing.reasons:
                found.append(f"{path} of {kind}:{container[:SHOWN_DIGITS]}, kept: {standing.reasons[0]}")
                break
        return Standing(row.state, tuple(dict.fromkeys(found)), row.collected_at, row.purged_at)


def _pinned(connection: Connection, digest: str) -> Iterator[str]:
    named = select(pins.c.name).where(pins.c.artifact_digest == digest).order_by(pins.c.name)
    direct = list(connection.execute(named).scalars())
    yield from (f"pin {name}" for name in direct)
    # Downwards from the artifact to the pinned ones: what was made from it is usually less than all that a
    # pin keeps.
    walk = select(artifacts.c.digest).where(artifacts.c.digest == digest).cte("reached", recursive=True)
    used, made = edges.alias("used_by_it"), edges.alias("made")
    step = (
        select(made.c.artifact_digest)
        .select_from(walk)
        .join(used, (used.c.artifact_digest == walk.c.digest) & (used.c.direction == "used"))
        .join(made, (made.c.run_id == used.c.run_id) & (made.c.direction == "generated"))
    )
    if not connection.execute(select(pins.c.id).where(pins.c.with_inputs).limit(1)).first():
        return
    reached = select(walk.union(step).c.digest)
    behind = (
        select(pins.c.name)
        .where(pins.c.with_inputs, pins.c.artifact_digest.in_(reached), pins.c.artifact_digest != digest)
        .order_by(pins.c.name)
        .limit(_SHOWN)
    )
    yield from (f"pin {name} keeps what it came from" for name in connection.execute(behind).scalars())


def _aliases(connection: Connection, digest: str) -> Iterator[str]:
    query = (
        select(weight_aliases.c.card, weight_aliases.c.component, weight_aliases.c.name)
        .join(weight_versions, weight_aliases.c.version_id == weight_versions.c.id)
        .where(points_now(), weight_versions.c.artifact_digest == digest)
        .order_by(weight_aliases.c.card, weight_aliases.c.component, weight_aliases.c.name)
    )
    yield from (f"alias {card}/{component}@{name}" for card, component, name in connection.execute(query))


def _in_flight(connection: Connection, digest: str) -> Iterator[str]:
    using = (
        select(runs.c.id, runs.c.state)
        .join(edges, edges.c.run_id == runs.c.id)
        .where(edges.c.artifact_digest == digest, in_flight)
        .order_by(runs.c.id)
        .limit(_SHOWN)
    )
    for id_, state in connection.execute(using):
        yield f"run {id_} is {state} and uses it"
    concerned = union(
        select(runs.c.workflow_run_id)
        .join(edges, edges.c.run_id == runs.c.id)
        .where(edges.c.artifact_digest == digest),
        select(calls.c.workflow_run_id)
        .join(edges, edges.c.run_id == calls.c.run_id)
        .where(edges.c.artifact_digest == digest, edges.c.direction == "generated"),
    )
    within = (
        select(workflow_runs.c.id, workflow_runs.c.workflow)
        .where(workflow_runs.c.id.in_(concerned), workflow_runs.c.id.in_(workflows_under_way()))
        .order_by(workflow_runs.c.id)
        .limit(_SHOWN)
    )
    for id_, workflow in connection.execute(within):
        yield f"{workflow} {id_} is under way and has it"
    running = select(workflow_runs).where(under_way)
    for row in sorted(connection.execute(running), key=attrgetter("id")):
        if mentions(row.parameters, digest):
            yield f"{row.workflow} {row.id} is under way and was given it"


def _leased(connection: Connection, digest: str) -> Iterator[str]:
    query = (
        select(leases.c.holder)
        .distinct()
        .where(leases.c.artifact_digest == digest, leases.c.kind == "reader", in_force)
        .order_by(leases.c.holder)
        .limit(_SHOWN)
    )
    yield from (f"lease held by {holder}" for holder in connection.execute(query).scalars())


def _rules(
    connection: Connection, rules: tuple[RetentionRule, ...], digest: str, kind: str, created_at: float
) -> Iterator[str]:
    asked = makers_of(literal(digest)).subquery("asked")
    made_in = (
        select(workflow_runs.c.workflow)
        .distinct()
        .select_from(asked)
        .outerjoin(workflow_runs, workflow_runs.c.id == asked.c.workflow_run_id)
    )
    workflows = list(connection.execute(made_in).scalars()) or [None]
    touched = (
        select(func.max(runs.c.finished_at))
        .join(edges, edges.c.run_id == runs.c.id)
        .where(edges.c.artifact_digest == digest)
    )
    called = (
        select(func.max(calls.c.created_at))
        .join(edges, edges.c.run_id == calls.c.run_id)
        .where(edges.c.artifact_digest == digest, edges.c.direction == "generated")
    )
    moments = [connection.execute(query).scalar_one() or 0.0 for query in (touched, called)]
    newest = max(created_at, *moments)
    age = connection.execute(select(now())).scalar_one() - newest
    for workflow in sorted(workflows, key=lambda name: name or ""):
        rule = kept_by(rules, kind, workflow)
        if rule is None:
            yield f"no rule speaks of {kind}" + (f" made by {workflow}" if workflow else "")
        elif age < rule.keep_seconds:
            yield f"{rule}; {spell_duration(round(rule.keep_seconds - age))} are left"


def _holders(connection: Connection, digest: str) -> list[tuple[str, str, str]]:
    query = (
        select(members.c.container, artifacts.c.kind, members.c.path)
        .join(artifacts, artifacts.c.digest == members.c.container)
        .where(members.c.artifact_digest == digest, artifacts.c.state == "present")
        .order_by(members.c.container, members.c.path)
        .limit(_SHOWN)
    )
    return [(row[0], row[1], row[2]) for row in connection.execute(query)]
