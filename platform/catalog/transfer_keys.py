"""Which rows belong to an artifact or a workflow run: their keys, table by table.

The closure of a root is all that it came from, and whole: a run in it brings everything it used *and* made,
so that a memo hit, a replay and a page find in the other catalog what they find here. What siblings of a root
came from beyond that is left out; so are runs that have not ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, or_, select

from mutoscope.platform.batches import batched
from mutoscope.platform.catalog import closure
from mutoscope.platform.catalog.keys import CHUNK
from mutoscope.platform.catalog.records import WEIGHTS_ROLE
from mutoscope.platform.catalog.tables import (
    artifacts,
    calls,
    edges,
    in_flight,
    incidents,
    members,
    runs,
    weight_versions,
    workflow_runs,
)

FILE_ROLE = "file:"
"""Prefix of the roles under which an import generated the files of its components."""


@dataclass(frozen=True, slots=True)
class Roots:
    """What is asked for: digests of artifacts, ids of runs, ids of workflow runs."""

    artifacts: frozenset[str] = frozenset()
    runs: frozenset[str] = frozenset()
    workflow_runs: frozenset[str] = frozenset()


@dataclass
class ClosureKeys:
    """Keys of all rows that belong together.

    Attributes:
        artifacts: digests; `weights` are those of them that are weights or files of weights.
        named: digests whose weight versions belong here.
    """

    artifacts: set[str] = field(default_factory=set)
    weights: set[str] = field(default_factory=set)
    named: set[str] = field(default_factory=set)
    runs: set[str] = field(default_factory=set)
    workflow_runs: set[str] = field(default_factory=set)


def closure_of(connection: Connection, roots: Roots, *, lateral: bool) -> ClosureKeys:
    """The closure of all roots together, as of the connection's transaction.

    Args:
        lateral: as `closure.ids` takes it.
    """
    return _Walk(connection, lateral=lateral).from_roots(roots)


class _Walk:
    """Collects the keys of a closure, a generation at a time. Lineage is walked by the database, in one
    statement a root; what remains are names, containers, calls and what those lead to."""

    def __init__(self, connection: Connection, *, lateral: bool) -> None:
        self._connection = connection
        self._upwards = closure.ids(closure.Way(down=False), lateral=lateral)
        self._found = ClosureKeys()
        self._origins: set[str] = set()  # digests whose makers are or will be looked up
        self._artifacts: set[str] = set()  # to look at next
        self._runs: set[str] = set()
        self._workflows: set[str] = set()

    def from_roots(self, roots: Roots) -> ClosureKeys:
        self._ask_for_artifacts(roots.artifacts)
        self._ask_for_runs(roots.runs)
        self._enter_workflows(roots.workflow_runs)
        covered: set[str] = set()
        for digest in sorted(self._artifacts):
            if digest not in covered:
                covered.update(self._connection.execute(self._upwards, {"root": digest}).scalars())
        self._ask_for_runs(node for node in covered if closure.is_run(node))
        self._ask_for_artifacts(node for node in covered if not closure.is_run(node))
        while self._artifacts or self._runs or self._workflows:
            self._step(self._take("_artifacts"), self._follow_artifacts)
            self._step(self._take("_runs"), self._follow_runs)
            self._step(self._take("_workflows"), self._follow_workflows)
        self._add_members()
        return self._found

    def _take(self, name: str) -> set[str]:
        taken: set[str] = getattr(self, name)
        setattr(self, name, set())
        return taken

    def _step(self, keys: set[str], follow: Callable[[list[str]], None]) -> None:
        for chunk in batched(sorted(keys), CHUNK):
            follow(chunk)

    def _ask_for_artifacts(self, digests: Iterable[str]) -> None:
        """These, and all they came from."""
        fresh = set(digests) - self._origins
        self._origins |= fresh
        self._artifacts |= fresh

    def _ask_for_runs(self, ids: Iterable[str | None]) -> None:
        self._runs |= {found for found in ids if found is not None} - self._found.runs

    def _note_workflows(self, ids: Iterable[str | None]) -> None:
        self._workflows |= {found for found in ids if found is not None} - self._found.workflow_runs

    def _follow_artifacts(self, digests: list[str]) -> None:
        known = set(self._column(artifacts.c.digest, artifacts.c.digest.in_(digests)))
        self._found.artifacts |= known
        made = (edges.c.artifact_digest.in_(digests), edges.c.direction == "generated")
        self._ask_for_runs(self._column(edges.c.run_id, *made))
        versions = self._all(
            select(
                weight_versions.c.artifact_digest,
                weight_versions.c.parent_id,
                weight_versions.c.produced_by_run,
            ).where(weight_versions.c.artifact_digest.in_(digests))
        )
        self._found.named |= {row.artifact_digest for row in versions}
        self._ask_for_runs(row.produced_by_run for row in versions)
        parents = {row.parent_id for row in versions} - {None}
        if parents:
            parent = weight_versions.c.id.in_(parents)
            self._ask_for_artifacts(self._column(weight_versions.c.artifact_digest, parent))

    def _follow_runs(self, ids: list[str]) -> None:
        rows = self._all(select(runs.c.id, runs.c.workflow_run_id).where(runs.c.id.in_(ids), ~in_flight))
        ended = {row.id for row in rows}
        self._found.runs |= ended
        self._note_workflows(row.workflow_run_id for row in rows)
        for row in self._all(select(edges).where(edges.c.run_id.in_(ended))):
            if row.direction == "used":
                self._ask_for_artifacts([row.artifact_digest])
            self._found.artifacts.add(row.artifact_digest)
            if row.role.startswith((WEIGHTS_ROLE, FILE_ROLE)):
                self._found.weights.add(row.artifact_digest)
        # Of two runs that disagree, neither tells the truth without the other.
        disagreeing = or_(incidents.c.run_id.in_(ended), incidents.c.earlier_run_id.in_(ended))
        for row in self._all(select(incidents.c.run_id, incidents.c.earlier_run_id).where(disagreeing)):
            self._ask_for_runs(row)

    def _follow_workflows(self, ids: list[str]) -> None:
        rows = self._all(
            select(workflow_runs.c.id, workflow_runs.c.parent_id).where(workflow_runs.c.id.in_(ids))
        )
        self._found.workflow_runs |= {row.id for row in rows}
        self._note_workflows(row.parent_id for row in rows)

    def _enter_workflows(self, ids: Iterable[str]) -> None:
        """Whole workflow runs: those inside them, every run they asked for, and their outputs."""
        inside = set(ids)
        while inside:
            reached: set[str] = set()
            for chunk in batched(sorted(inside), CHUNK):
                within = workflow_runs.c.id.in_(chunk)
                for outputs in self._column(workflow_runs.c.outputs, within):
                    self._ask_for_artifacts((outputs or {}).values())
                self._ask_for_runs(self._column(runs.c.id, runs.c.workflow_run_id.in_(chunk)))
                self._ask_for_runs(self._column(calls.c.run_id, calls.c.workflow_run_id.in_(chunk)))
                reached |= set(self._column(workflow_runs.c.id, workflow_runs.c.parent_id.in_(chunk)))
            self._note_workflows(inside)
            inside = reached

    def _add_members(self) -> None:
        """What containers hold. Their bytes belong to the closure; how they came about need not."""
        containers = set(self._found.artifacts)
        while containers:
            held: set[str] = set()
            for chunk in batched(sorted(containers), CHUNK):
                pairs = select(members.c.container, members.c.artifact_digest, artifacts.c.kind).join(
                    artifacts, artifacts.c.digest == members.c.container
                )
                for row in self._all(pairs.where(members.c.container.in_(chunk))):
                    held.add(row.artifact_digest)
                    if row.kind == "weights" or row.container in self._found.weights:
                        self._found.weights.add(row.artifact_digest)
            containers = held - self._found.artifacts
            self._found.artifacts |= held
        self._found.weights |= self._of_kind_weights()

    def _of_kind_weights(self) -> set[str]:
        found: set[str] = set()
        for chunk in batched(sorted(self._found.artifacts), CHUNK):
            found.update(
                self._column(artifacts.c.digest, artifacts.c.digest.in_(chunk), artifacts.c.kind == "weights")
            )
        return found

    def _all(self, query: Any) -> list[Any]:
        return list(self._connection.execute(query))

    def _column(self, column: Column[Any], *conditions: ColumnElement[bool]) -> list[Any]:
        return list(self._connection.execute(select(column).where(*conditions)).scalars())
