"""Rows that arrive from another catalog: entered where they are new, compared where they are not.

Ids of runs and digests mean the same everywhere, so most rows simply meet again. Two things are local, and
settled in `merge_versions`: the numbers of weight versions, and where aliases point.

A run that is here already must be the same, edges included. A run that is new, and made other bytes than one
here under an equal memo key, is a determinism incident like any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection, and_, func, insert, or_, select, update
from sqlalchemy.exc import DataError, IntegrityError

from mutoscope.platform.batches import batched
from mutoscope.platform.catalog.bulk import ArtifactRow, Bulk, Member
from mutoscope.platform.catalog.calls import Call, to_call
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.edges import roles, to_run
from mutoscope.platform.catalog.graph import Edge
from mutoscope.platform.catalog.incidents import Incident, add_incident
from mutoscope.platform.catalog.merge_versions import ArrivingVersions
from mutoscope.platform.catalog.records import RunRecord
from mutoscope.platform.catalog.tables import (
    calls,
    edges,
    incidents,
    runs,
    workflow_runs,
)
from mutoscope.platform.catalog.transfer import Alias, Transfer, parents_first
from mutoscope.platform.catalog.weights import WeightVersion
from mutoscope.platform.catalog.workflows import WorkflowRecord, to_workflow_run
from mutoscope.platform.errors import CatalogError

T = TypeVar("T")

_BATCH = 500
_LOCAL = frozenset(
    {
        "waiters",
        "cancel_requested",
        "priority",
        "attempt",
        "max_attempts",
        "holder",
        "lease_expires_at",
        "time_limit_seconds",
        "weights_key",
        "weights_bytes",
        "prefect_deployment",
    }
)
"""Columns of a run, or of a workflow run, that belong to the queue it was in and to who executed it, and say
nothing about what it did."""


class Arrivals(Protocol):
    """Rows from elsewhere, each table as often as it is asked for. Of artifacts, those are present whose
    bytes are in this store."""

    def artifacts(self) -> Iterable[ArtifactRow]: ...
    def members(self) -> Iterable[Member]: ...
    def workflow_runs(self) -> Iterable[WorkflowRecord]: ...
    def runs(self) -> Iterable[RunRecord]: ...
    def edges(self) -> Iterable[Edge]: ...
    def calls(self) -> Iterable[Call]: ...
    def weight_versions(self) -> Iterable[WeightVersion]: ...
    def weight_aliases(self) -> Iterable[Alias]: ...
    def incidents(self) -> Iterable[Incident]: ...


@dataclass(slots=True)
class Merged:
    """What an arrival changed, or would change.

    Attributes:
        new: rows that were not here, by table; of artifacts also those whose bytes are back.
        workflow_runs: ids of the new ones.
        renamed: weight versions that go by another name here: the name there to the name here.
        moved: versions that the alias asked for points to now.
        disagreements: determinism incidents that the arrival brought to light.
    """

    new: dict[str, int] = field(default_factory=dict)
    workflow_runs: list[str] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)
    moved: list[str] = field(default_factory=list)
    disagreements: int = 0

    @property
    def changed(self) -> bool:
        """Whether anything was new."""
        return any(self.new.values()) or bool(self.moved or self.disagreements)


class Merging(Transfer):
    """`catalog.transfer`: `Transfer`, and the incoming half."""

    def merge(
        self,
        arrivals: Arrivals,
        *,
        alias: str | None = None,
        rehearse: bool = False,
        before_commit: Callable[[], None] = lambda: None,
    ) -> Merged:
        """Enter rows in one transaction. Doing it again changes nothing.

        Args:
            alias: point this alias where it pointed at home.
            rehearse: find out what would change, or what is wrong, and change nothing.
            before_commit: called when all is entered and nobody sees it yet.

        Raises:
            CatalogError: a row contradicts one that is here, or refers to one that is nowhere.
            UnknownReference: the alias asked for is not among those that arrive.
        """
        try:
            with self._database.write(at_leisure=True) as connection:
                merge = _Merge(self._database, connection)
                merge.enter(arrivals, alias)
                before_commit()
                if rehearse:
                    raise _Rehearsed
        except _Rehearsed:
            pass
        except (IntegrityError, DataError) as error:
            raise CatalogError(f"the rows do not fit together ({error.orig}): nothing was entered") from None
        return merge.result


class _Rehearsed(Exception):
    """Takes back a transaction that has served its purpose."""


class _Merge:
    """One transaction's work."""

    def __init__(self, database: Database, connection: Connection) -> None:
        self._connection = connection
        self._bulk = Bulk(database, connection)
        self._new_runs: set[str] = set()
        self.result = Merged()
        self._versions = ArrivingVersions(database, connection, self.result.renamed, self.result.moved)

    def enter(self, arrivals: Arrivals, alias: str | None) -> None:
        """A row before what refers to it."""
        new = self.result.new
        new["artifacts"] = self._bulk.artifacts(arrivals.artifacts())
        new["members"] = self._bulk.members(arrivals.members())
        new["workflow_runs"] = self._enter_workflow_runs(arrivals.workflow_runs())
        new["runs"] = self._enter_runs(arrivals.runs())
        new["edges"] = self._enter_edges(arrivals.edges())
        new["calls"] = sum(map(self._enter_calls, batched(arrivals.calls(), _BATCH)))
        new["incidents"] = sum(map(self._enter_incidents, batched(arrivals.incidents(), _BATCH)))
        new["weight_versions"] = self._versions.enter(arrivals.weight_versions())
        if alias is not None:
            self._versions.move_alias(alias, arrivals.weight_aliases())
        for batch in batched(sorted(self._new_runs), _BATCH):
            self._look_for_disagreements(batch)

    # Workflow runs and runs: new, or the same

    def _enter_workflow_runs(self, records: Iterable[WorkflowRecord]) -> int:
        count = 0
        for batch in batched(parents_first(list(records)), _BATCH):
            rows = self._known(select(workflow_runs), workflow_runs.c.id, batch)
            known = {row.id: to_workflow_run(row) for row in rows}
            fresh = _fresh("workflow run", list(self._ended_since(batch, known)), known, _LOCAL)
            self.result.workflow_runs += [record.id for record in fresh]
            # Whoever executes one that is open does so elsewhere: nobody here waits for a sign of life.
            count += self._bulk.workflow_runs(
                replace(record, holder=None, lease_expires_at=None) for record in fresh
            )
        return count

    def _ended_since(
        self, batch: Sequence[WorkflowRecord], known: dict[str, WorkflowRecord]
    ) -> Iterator[WorkflowRecord]:
        """Settles runs of which one side knows the end and the other does not: the end is what counts."""
        for record in batch:
            here = known.get(record.id)
            if here is None or (here.finished_at is None) == (record.finished_at is None):
                yield record
            elif here.finished_at is None and _said_of(record) == _said_of(here):
                this = workflow_runs.c.id == record.id
                self._connection.execute(update(workflow_runs).where(this).values(**_end_of(record)))
                self.result.workflow_runs.append(record.id)
            elif _said_of(here) != _said_of(record):
                yield record

    def _enter_runs(self, records: Iterable[RunRecord]) -> int:
        count = 0
        for batch in batched(records, _BATCH):
            known = {row.id: to_run(row) for row in self._known(select(runs), runs.c.id, batch)}
            fresh = _fresh("run", batch, known, _LOCAL)
            self._new_runs |= {record.id for record in fresh}
            count += self._bulk.runs(fresh)
        return count

    def _known(self, query: Any, key: Any, records: Sequence[Any]) -> list[Any]:
        return list(self._connection.execute(query.where(key.in_([record.id for record in records]))))

    # Edges

    def _enter_edges(self, found: Iterable[Edge]) -> int:
        """New runs' edges are entered; a known run's must be exactly those it has."""
        count, met = 0, Counter[str]()
        for batch in batched(found, _BATCH):
            count += self._bulk.edges(edge for edge in batch if edge.run_id in self._new_runs)
            known = [edge for edge in batch if edge.run_id not in self._new_runs]
            met.update(edge.run_id for edge in known)
            self._compare_edges(known)
        for ids in batched(sorted(met), _BATCH):
            query = select(edges.c.run_id, func.count()).where(edges.c.run_id.in_(ids))
            for run_id, here in self._connection.execute(query.group_by(edges.c.run_id)):
                if here != met[run_id]:
                    raise CatalogError(
                        f"run {run_id} has {here} edges here and {met[run_id]} there: "
                        "one of the two histories was altered; nothing was entered"
                    )
        return count

    def _compare_edges(self, found: Sequence[Edge]) -> None:
        ids = {edge.run_id for edge in found}
        here = {Edge(*row) for row in self._connection.execute(select(edges).where(edges.c.run_id.in_(ids)))}
        for edge in found:
            if edge not in here:
                raise CatalogError(
                    f"run {edge.run_id} {edge.direction} {edge.digest[:12]} as {edge.role} there, and not "
                    "here: one of the two histories was altered; nothing was entered"
                )

    # Calls and incidents

    def _enter_calls(self, found: Sequence[Call]) -> int:
        """A call has no name of its own; it is known by all it says."""
        query = select(calls).where(calls.c.run_id.in_({call.run_id for call in found}))
        here = {_said(to_call(row)) for row in self._connection.execute(query)}
        fresh = [call for call in found if _said(call) not in here]
        if fresh:
            self._connection.execute(insert(calls), [_call_row(call) for call in fresh])
        return len(fresh)

    def _enter_incidents(self, found: Sequence[Incident]) -> int:
        here = {row.id for row in self._known(select(incidents.c.id), incidents.c.id, found)}
        fresh = [asdict(incident) for incident in found if incident.id not in here]
        if fresh:
            self._connection.execute(insert(incidents), fresh)
        return len(fresh)

    def _look_for_disagreements(self, ids: Sequence[str]) -> None:
        mine, other = runs.alias("mine"), runs.alias("other")
        pairs = (
            select(mine.c.id, other.c.id, mine.c.finished_at, other.c.finished_at, mine.c.memo_key)
            .join(other, and_(other.c.memo_key == mine.c.memo_key, other.c.id != mine.c.id))
            .where(mine.c.id.in_(ids), mine.c.state == "succeeded", other.c.state == "succeeded")
            .order_by(mine.c.id, other.c.finished_at, other.c.id)
        )
        # One pair a run: with the oldest that answers its key.
        oldest = {row[0]: row for row in reversed(list(self._connection.execute(pairs)))}
        for one, two, ended, other_ended, key in oldest.values():
            later, earlier = (one, two) if (other_ended, two) < (ended, one) else (two, one)
            made = {id_: self._made(id_) for id_ in (earlier, later)}
            if made[earlier] != made[later] and not self._on_record(later, earlier):
                details = {"earlier": made[earlier], "now": made[later]}
                add_incident(
                    self._connection, "determinism", later, details, memo_key=key, earlier_run_id=earlier
                )
                self.result.disagreements += 1

    def _made(self, run_id: str) -> dict[str, str]:
        return {slot: ref.digest for slot, ref in roles(self._connection, run_id, "generated").items()}

    def _on_record(self, one: str, two: str) -> bool:
        pair = or_(
            and_(incidents.c.run_id == one, incidents.c.earlier_run_id == two),
            and_(incidents.c.run_id == two, incidents.c.earlier_run_id == one),
        )
        return self._connection.execute(select(incidents.c.id).where(pair).limit(1)).first() is not None


def _fresh(noun: str, batch: Sequence[T], known: Mapping[str, T], local: frozenset[str]) -> list[T]:
    """Those of a batch that are new. Raises CatalogError where one that is known says something else."""
    fresh = []
    for record in batch:
        here = known.get(record.id)  # type: ignore[attr-defined]
        if here is None:
            fresh.append(record)
            continue
        for item in fields(record):  # type: ignore[arg-type]
            ours, theirs = getattr(here, item.name), getattr(record, item.name)
            if item.name not in local and ours != theirs:
                raise CatalogError(
                    f"{noun} {record.id} has {item.name} {_short(ours)} here and {_short(theirs)} there: "  # type: ignore[attr-defined]
                    "one of the two histories was altered; nothing was entered"
                )
    return fresh


def _end_of(record: WorkflowRecord) -> dict[str, Any]:
    """What is open while the run is."""
    return {name: getattr(record, name) for name in ("state", "outputs", "error", "finished_at")}


def _said_of(record: WorkflowRecord) -> dict[str, Any]:
    """What was settled when the run began."""
    local = _LOCAL | _end_of(record).keys()
    return {item.name: getattr(record, item.name) for item in fields(record) if item.name not in local}


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _said(call: Call) -> tuple[Any, ...]:
    return call.run_id, call.workflow_run_id, call.disposition, call.created_at


def _call_row(call: Call) -> dict[str, Any]:
    return {
        "run_id": call.run_id,
        "workflow_run_id": call.workflow_run_id,
        "disposition": call.disposition,
        "passed_over": call.passed_over.to_dict() if call.passed_over else None,
        "created_at": call.created_at,
        "left_at": call.left_at,
    }
