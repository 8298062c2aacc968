"""Runs: queued once per memo key, looked up, cancelled, or recorded when done elsewhere. What a worker does
to a run is in `claims`."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, case, func, insert, or_, select, true, update
from sqlalchemy.exc import IntegrityError

from mutoscope.platform.catalog.artifacts import record_all
from mutoscope.platform.catalog.attempts import AttemptRecord, attempts_of
from mutoscope.platform.catalog.calls import PassedOver, add_call
from mutoscope.platform.catalog.claims import Claims
from mutoscope.platform.catalog.clock import now
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.edges import add_edges, require_known, roles, to_run
from mutoscope.platform.catalog.graph import read_runs
from mutoscope.platform.catalog.keys import by_prefix
from mutoscope.platform.catalog.members import CONTAINER_KIND, Members, held_by, record_members
from mutoscope.platform.catalog.placement import weights_bytes, weights_key
from mutoscope.platform.catalog.records import WEIGHTS_ROLE, Enqueued, RunRecord, RunSpec
from mutoscope.platform.catalog.tables import edges, in_flight, runs
from mutoscope.platform.catalog.waiting import leave
from mutoscope.platform.catalog.workflow_leases import require_held
from mutoscope.platform.errors import InvalidParameter, UnknownReference
from mutoscope.platform.ids import new_id
from mutoscope.platform.refs import ArtifactRef

_GET = select(runs).where(runs.c.id == bindparam("run"))
_SUCCESSES = (
    select(runs)
    .where(runs.c.memo_key == bindparam("key"), runs.c.state == "succeeded")
    .order_by(runs.c.finished_at, runs.c.id)
)
# A caller who attaches revives a run whose cancellation its worker has not noticed yet.
_ATTACH = (
    update(runs)
    .where(runs.c.memo_key == bindparam("key"), in_flight)
    .values(
        waiters=runs.c.waiters + 1,
        cancel_requested=False,
        priority=case((runs.c.priority < bindparam("wish"), bindparam("wish")), else_=runs.c.priority),
    )
    .returning(runs)
)
# What of a spec goes into the row; the rest becomes edges.
_SPEC_COLUMNS = tuple(field.name for field in fields(RunSpec) if field.name not in ("inputs", "weights"))

Present = Callable[[ArtifactRef], bool]
"""Whether the store holds an artifact, whole as far as a cheap look can tell."""


_SIZES_KEPT = 1024


class Used(NamedTuple):
    """What a run used: artifacts by slot, and the digest of each component's weights."""

    inputs: dict[str, ArtifactRef]
    weights: dict[str, str]


class Runs(Claims):
    """`catalog.runs`."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        # An equal run under way is met here, by the index that allows one: no lock, no look before.
        self._insert_if_new = (
            database.insert(runs)
            .values(state="queued", created_at=now())
            .on_conflict_do_nothing(index_elements=[runs.c.memo_key], index_where=in_flight)
            .returning(runs)
        )
        # Weights never change under their digest, and thousands of runs pin the same.
        self._sizes: dict[str, int] = {}

    def enqueue(
        self, spec: RunSpec, *, present: Present | None, held: tuple[str, str] | None = None
    ) -> Enqueued:
        """Queue the run, unless an equal one has succeeded (a hit) or is under way (attached). What became of
        the request is noted as a call.

        Args:
            present: whether the store holds an artifact. Asked outside any transaction: a slow store must not
                hold the catalog's write lock. None: the memo may not answer, the run is to be made anew.
            held: a workflow run and the process that must hold it, or nothing is queued: one that was cut off
                and has been succeeded would queue what nobody waits for.

        Raises:
            UnknownReference: the spec pins weights that the catalog does not know.
            CatalogUnavailable: the workflow run is held by somebody else; its process will be told.
        """
        while True:
            hit, judged, passed_over = self._find_hit(spec.memo_key, present)
            if hit is not None:
                with self._database.write() as connection:
                    call = add_call(connection, hit.id, spec.workflow_run_id, "hit")
                return Enqueued(hit, "hit", call)
            try:
                queued = self._queue(spec, judged, passed_over, held)
            except IntegrityError:
                with self._database.glance() as connection:
                    require_known(connection, _weight_roles(spec))
                raise
            except _Overtaken:
                continue
            if queued is not None:
                return queued

    def get(self, run_id: str) -> RunRecord:
        """The run with that full id. Raises UnknownReference."""
        with self._database.glance() as connection:
            row = connection.execute(_GET, {"run": run_id}).one_or_none()
        if row is None:
            raise UnknownReference(f"no run has the id {run_id!r}: `mutoscope ls runs` lists them")
        return to_run(row)

    def get_many(self, run_ids: Collection[str]) -> dict[str, RunRecord]:
        """The runs of those ids that there are, by id."""
        with self._database.read() as connection:
            return read_runs(connection, run_ids)

    def find(self, prefix: str) -> RunRecord:
        """The run whose id starts with `prefix`. Raises UnknownReference or AmbiguousReference."""
        return to_run(by_prefix(self._database, runs, prefix, "run", "mutoscope ls runs"))

    def list(
        self,
        *,
        kind: str | None = None,
        card: str | None = None,
        state: str | None = None,
        memo_key: str | None = None,
        workflow_run_id: str | None = None,
        limit: int = 50,
    ) -> builtins.list[RunRecord]:
        """Newest first, narrowed by what is given."""
        given = {
            runs.c.kind: kind,
            runs.c.card: card,
            runs.c.state: state,
            runs.c.memo_key: memo_key,
            runs.c.workflow_run_id: workflow_run_id,
        }
        query = select(runs).order_by(runs.c.created_at.desc(), runs.c.id.desc()).limit(limit)
        query = query.where(*(column == value for column, value in given.items() if value is not None))
        with self._database.glance() as connection:
            return [to_run(row) for row in connection.execute(query)]

    def counts(self) -> dict[str, int]:
        """How many runs are in each state; states without runs are left out."""
        query = select(runs.c.state, func.count()).group_by(runs.c.state).order_by(runs.c.state)
        with self._database.glance() as connection:
            return {row[0]: row[1] for row in connection.execute(query)}

    def outputs(self, run_id: str) -> dict[str, ArtifactRef]:
        """What the run generated, by slot."""
        with self._database.glance() as connection:
            return roles(connection, run_id, "generated")

    def inputs(self, run_id: str) -> dict[str, ArtifactRef]:
        """What the run used, by slot, weights aside."""
        return self.used(run_id).inputs

    def weights(self, run_id: str) -> dict[str, str]:
        """The weights the run was pinned to: component to digest."""
        return self.used(run_id).weights

    def used(self, run_id: str) -> Used:
        """Its inputs and its weights, as `inputs` and `weights` tell them, in one question."""
        with self._database.glance() as connection:
            used = roles(connection, run_id, "used")
        weights = {role: ref for role, ref in used.items() if role.startswith(WEIGHTS_ROLE)}
        return Used(
            {role: ref for role, ref in used.items() if role not in weights},
            {role.removeprefix(WEIGHTS_ROLE): ref.digest for role, ref in weights.items()},
        )

    def attempts(self, run_id: str) -> builtins.list[AttemptRecord]:
        """Times the run was taken and did not succeed, oldest first."""
        with self._database.glance() as connection:
            return attempts_of(connection, run_id)

    def generated_by(self, digest: str) -> builtins.list[RunRecord]:
        """The runs that generated an artifact, oldest first."""
        query = (
            select(runs)
            .join(edges, edges.c.run_id == runs.c.id)
            .where(edges.c.artifact_digest == digest, edges.c.direction == "generated")
            .order_by(runs.c.created_at, runs.c.id)
        )
        with self._database.glance() as connection:
            return [to_run(row) for row in connection.execute(query)]

    def withdraw(self, call: int) -> None:
        """One caller, known by its call, no longer wants its run; saying so again changes nothing.

        Equal requests share a run, so it is cancelled only when the last of its callers has gone. A queued
        run ends at once; a running one is stopped by its worker, which learns of it when it renews its lease.
        """
        with self._database.write(news=True) as connection:
            leave(connection, call)

    def request_cancel(self, run_id: str, *, force: bool = False) -> RunRecord:
        """As `withdraw`, by somebody who has no call at hand; with `force`, whoever else may be waiting."""
        with self._database.write(news=True) as connection:
            waiters = runs.c.waiters - 1
            last = true() if force else or_(runs.c.cancel_requested, waiters <= 0)
            connection.execute(
                update(runs)
                .where(runs.c.id == run_id, in_flight)
                .values(waiters=case((waiters < 0, 0), else_=waiters), cancel_requested=last)
            )
            connection.execute(
                update(runs)
                .where(runs.c.id == run_id, runs.c.state == "queued", runs.c.cancel_requested)
                .values(state="cancelled", finished_at=now())
            )
        return self.get(run_id)

    def record_completed(
        self,
        kind: str,
        *,
        generated: Mapping[str, ArtifactRef],
        used: Mapping[str, ArtifactRef | str] | None = None,
        card: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        seed: int | None = None,
        timings: Mapping[str, float] | None = None,
        workflow_run_id: str | None = None,
        members: Mapping[str, Members] | None = None,
    ) -> RunRecord:
        """Record work done outside the queue (an import, a train step) with its edges, in one transaction.

        Args:
            generated, used: role to artifact; a digest alone will do for one the catalog knows.
            members: what the containers among those generated hold, by the container's digest.

        Raises:
            UnknownReference: it does not know it.
        """
        run_id, used = new_id(), used or {}
        with self._database.write() as connection:
            referred = [ref for ref in used.values() if isinstance(ref, ArtifactRef)]
            record_all(self._database, connection, referred, stored=False)
            record_all(self._database, connection, generated.values())
            connection.execute(
                insert(runs).values(
                    id=run_id,
                    kind=kind,
                    card=card,
                    parameters=dict(parameters or {}),
                    seed=seed,
                    state="succeeded",
                    timings=dict(timings) if timings is not None else None,
                    workflow_run_id=workflow_run_id,
                    created_at=now(),
                    started_at=now(),
                    finished_at=now(),
                )
            )
            digests = {
                role: ref.digest if isinstance(ref, ArtifactRef) else ref for role, ref in used.items()
            }
            require_known(connection, digests)
            add_edges(connection, run_id, "used", digests)
            add_edges(connection, run_id, "generated", {role: ref.digest for role, ref in generated.items()})
            record_members(self._database, connection, members or {})
        return self.get(run_id)

    def _find_hit(
        self, memo_key: str | None, present: Present | None
    ) -> tuple[RunRecord | None, builtins.list[str], PassedOver | None]:
        """The oldest success of the key whose outputs are all there; else the ids of every success looked at,
        and why the oldest is no hit.

        The oldest, so that what a key answers does not change when a later run disagrees (an incident).
        """
        if memo_key is None:
            return None, [], None
        # What a run that has succeeded made never changes.
        with self._database.glance() as connection:
            succeeded = [to_run(row) for row in connection.execute(_SUCCESSES, {"key": memo_key})]
            outputs = [_needed(connection, run.id) for run in succeeded]
        passed_over = None
        for run, refs in zip(succeeded, outputs, strict=True):
            fault = _fault(run.id, refs, present)
            if fault is None:
                return run, [], None
            passed_over = passed_over or fault
        return None, [run.id for run in succeeded], passed_over

    def _queue(
        self,
        spec: RunSpec,
        judged: builtins.list[str],
        passed_over: PassedOver | None,
        held: tuple[str, str] | None,
    ) -> Enqueued | None:
        """Insert a run, or attach to the equal one that is under way; None when that has ended meanwhile.

        Inserting comes before the second look at the successes: a run that ends in between is met by one of
        the two.

        Raises:
            _Overtaken: a success appeared that has not been judged; nothing is inserted.
        """
        with self._database.write(news=True) as connection:
            if held is not None:
                require_held(connection, *held)
            run = self._insert(connection, spec)
            if run is None:
                attach = {"key": spec.memo_key, "wish": spec.priority}
                attached = connection.execute(_ATTACH, attach).one_or_none()
                if attached is None:
                    return None
                call = add_call(connection, attached.id, spec.workflow_run_id, "attached")
                return Enqueued(to_run(attached), "attached", call)
            if spec.memo_key is not None and judged != _successes(connection, spec.memo_key):
                raise _Overtaken
            self._add_used(connection, run, spec)
            call = add_call(connection, run.id, spec.workflow_run_id, "new", passed_over)
            return Enqueued(run, "new", call)

    def _insert(self, connection: Connection, spec: RunSpec) -> RunRecord | None:
        """The new row; None when a run of the same key is under way."""
        values = {name: getattr(spec, name) for name in _SPEC_COLUMNS}
        values["parameters"] = dict(spec.parameters)
        values["key_parts"] = dict(spec.key_parts) if spec.key_parts is not None else None
        values["weights_key"], values["weights_bytes"] = self._placement(connection, spec)
        row = connection.execute(self._insert_if_new, {"id": new_id(), **values}).one_or_none()
        return to_run(row) if row is not None else None

    def _add_used(self, connection: Connection, run: RunRecord, spec: RunSpec) -> None:
        """Edges to what the run uses. Weights must be known; inputs may not have been recorded yet."""
        record_all(self._database, connection, spec.inputs.values(), stored=False)
        used = {slot: ref.digest for slot, ref in spec.inputs.items()} | _weight_roles(spec)
        if len(used) != len(spec.inputs) + len(spec.weights):
            raise InvalidParameter(
                "inputs", sorted(spec.inputs), f"slot names may not begin with {WEIGHTS_ROLE}"
            )
        add_edges(connection, run.id, "used", used)

    def _placement(self, connection: Connection, spec: RunSpec) -> tuple[str, int] | tuple[None, None]:
        """What the run's weights are called, and their bytes."""
        key = weights_key(spec.card, spec.weights)
        if key is None:
            return None, None
        if key not in self._sizes:
            if len(self._sizes) >= _SIZES_KEPT:
                self._sizes.clear()
            self._sizes[key] = weights_bytes(connection, spec.weights.values())
        return key, self._sizes[key]


class _Overtaken(Exception):
    """Takes back the transaction of a caller who must look again."""


def _weight_roles(spec: RunSpec) -> dict[str, str]:
    """The weights that a run is pinned to, digests by their role."""
    return {f"{WEIGHTS_ROLE}{component}": digest for component, digest in spec.weights.items()}


def _successes(connection: Connection, memo_key: str) -> list[str]:
    """Ids of the runs that answer a key, in the order in which they are judged."""
    return [row.id for row in connection.execute(_SUCCESSES, {"key": memo_key})]


def _needed(connection: Connection, run_id: str) -> list[ArtifactRef]:
    """What a run generated, and what containers among that consist of."""
    made = list(roles(connection, run_id, "generated").values())
    return [*made, *held_by(connection, (ref.digest for ref in made if ref.kind == CONTAINER_KIND))]


def _fault(run_id: str, outputs: Sequence[ArtifactRef], present: Present | None) -> PassedOver | None:
    """Why a success cannot answer; None when it can."""
    if present is None:
        return PassedOver(run_id, "replay")
    if not outputs:
        return PassedOver(run_id, "empty")
    absent = tuple(ref.digest for ref in outputs if not present(ref))
    return PassedOver(run_id, "absent", absent) if absent else None
