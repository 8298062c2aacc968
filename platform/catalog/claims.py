"""What a worker does to runs: claim with a lease, renew, report.

A run belongs to the worker named in its row while its state is ``running``. Every report checks that in the
same transaction, so a worker that lost its lease cannot overwrite what its successor does. Lease times are
written and compared by the database's clock alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, and_, bindparam, select, update

from mutoscope.platform.catalog.artifacts import record_all
from mutoscope.platform.catalog.attempts import Outcome, add_attempt
from mutoscope.platform.catalog.claiming import take_some
from mutoscope.platform.catalog.clock import now
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.edges import add_edges, roles, to_run
from mutoscope.platform.catalog.incidents import add_incident
from mutoscope.platform.catalog.members import Members, record_members
from mutoscope.platform.catalog.records import RenewResult, RunRecord, Standing
from mutoscope.platform.catalog.residents import Residents
from mutoscope.platform.catalog.routing import Claimant
from mutoscope.platform.catalog.tables import runs
from mutoscope.platform.errors import InvalidParameter, LeaseLost
from mutoscope.platform.refs import ArtifactRef

_OWNED = and_(runs.c.id == bindparam("run"), runs.c.state == "running", runs.c.worker == bindparam("owner"))

_RENEW = (
    update(runs)
    .where(
        runs.c.id.in_(bindparam("wanted", expanding=True)),
        runs.c.state == "running",
        runs.c.worker == bindparam("owner"),
    )
    .values(lease_expires_at=now() + bindparam("seconds"))
    .returning(runs.c.id, runs.c.cancel_requested)
)
_PROGRESS = update(runs).where(_OWNED).returning(runs.c.cancel_requested)
_LOOK = select(runs).where(_OWNED).with_for_update()
_FINISH = update(runs).where(_OWNED).values(finished_at=now(), lease_expires_at=None).returning(runs)
_REQUEUE = (
    update(runs)
    .where(_OWNED)
    .values(state="queued", worker=None, lease_expires_at=None, stage=None, step=None, total=None)
    .returning(runs)
)
_EARLIER = (
    select(runs.c.id)
    .where(runs.c.memo_key == bindparam("key"), runs.c.state == "succeeded", runs.c.id != bindparam("run"))
    .order_by(runs.c.finished_at, runs.c.id)
    .limit(1)
)


PATIENCE_SECONDS = 2.0
"""How long a young run may be left to a worker that has its weights; see `routing`."""


class Claims:
    """The worker's half of `catalog.runs`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._residents = Residents(database)

    def claim(
        self,
        worker_id: str,
        cards: Mapping[str, str],
        lease_seconds: float,
        limit: int = 1,
        *,
        card_digests: Mapping[str, str] | None = None,
        also: Iterable[tuple[str, str]] = (),
        busy: Iterable[str] = (),
        resident: Iterable[str] | None = None,
        memory_bytes: int | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
        expired: bool = True,
    ) -> list[RunRecord]:
        """Take up to `limit` runs: queued ones, and running ones whose lease ran out, in the order that
        `routing` explains.

        A run that has used up its attempts is failed instead, one whose cancellation was requested is
        cancelled. An idle call costs one read and no lock.

        Args:
            cards: card id to the digest of the numeric contract this worker runs it under. Other runs are
                left alone.
            card_digests: card id to the digest of its code here. A run queued for other code is left alone
                too: its memo key names an output that this code does not make. A card not listed is taken
                whatever its code.
            also: further pairs of card id, one of `cards`, and contract that this worker can keep.
            busy: workflow runs of which the worker serves a run.
            resident: `weights_key` of each set of weights in its memory; None: it has no say in where runs
                go.
            memory_bytes: runs whose weights are larger are left alone; None: not known.
            patience_seconds: how far residency may bend the order of age.
            expired: take runs whose lease ran out, too. Not so for a while after the catalog was away: its
                workers may live, and merely could not renew.
        """
        if not cards or limit < 1:
            return []
        if lease_seconds <= 0:
            raise InvalidParameter("lease_seconds", lease_seconds, "use a positive number of seconds")
        digests = card_digests or {}
        claimant = Claimant(
            worker=worker_id,
            served=[*cards.items(), *also],
            coded=[(card, digests[card]) for card in cards if card in digests],
            uncoded=[card for card in cards if card not in digests],
            resident=frozenset(resident or ()),
            elsewhere=frozenset() if resident is None else self._residents.elsewhere(worker_id),
            memory_bytes=memory_bytes,
            patience=0.0 if resident is None else patience_seconds,
            expired=expired,
        )
        return take_some(self._database, claimant, lease_seconds, limit, set(busy))

    def renew(self, worker_id: str, run_ids: Iterable[str], lease_seconds: float) -> RenewResult:
        """Extend the leases of the worker's runs; says which are lost and which should stop."""
        wanted = frozenset(run_ids)
        if not wanted:
            return RenewResult(frozenset(), frozenset())
        parameters = {"wanted": list(wanted), "owner": worker_id, "seconds": lease_seconds}
        with self._database.stroke() as connection:
            rows = connection.execute(_RENEW, parameters).all()
        kept = frozenset(row.id for row in rows)
        return RenewResult(wanted - kept, frozenset(row.id for row in rows if row.cancel_requested))

    def progress(self, run_id: str, worker_id: str, stage: str, step: int, total: int) -> Standing:
        """Note where the run is: `step` finished work plans of `total`.

        Returns:
            How the worker stands with it, so that one that reports often learns at once what a renewal would
            tell it later: ``kept``, ``cancel`` (it should stop) or ``lost`` (the run is another's).
        """
        with self._database.stroke() as connection:
            values = {"stage": stage, "step": step, "total": total}
            row = connection.execute(_PROGRESS, {"run": run_id, "owner": worker_id, **values}).one_or_none()
        if row is None:
            return "lost"
        return "cancel" if row.cancel_requested else "kept"

    def succeed(
        self,
        run_id: str,
        worker_id: str,
        outputs: Mapping[str, ArtifactRef],
        timings: Mapping[str, float] | None = None,
        *,
        members: Mapping[str, Members] | None = None,
        warnings: Sequence[str] = (),
        progress: tuple[str, int, int] | None = None,
    ) -> RunRecord:
        """Record outputs (their bytes are stored already), generated edges and the state, in one transaction.

        When an earlier success of the same memo key has other digests, both stand and a determinism incident
        is recorded.

        Args:
            members: what the containers among the outputs hold, by the container's digest.
            warnings: lines that the run's user should read all the same.
            progress: where it was when it was done, as `progress` notes it.

        Raises:
            LeaseLost: the run is not the worker's; nothing is recorded.
        """
        digests = {slot: ref.digest for slot, ref in outputs.items()}
        with self._database.write(news=True) as connection:
            run = _finish(
                connection,
                run_id,
                worker_id,
                "succeeded",
                timings=timings,
                warnings=warnings,
                progress=progress,
            )
            record_all(self._database, connection, outputs.values())
            add_edges(connection, run_id, "generated", digests)
            record_members(self._database, connection, members or {})
            _compare_with_earlier(connection, run, digests)
        return run

    def fail(
        self,
        run_id: str,
        worker_id: str,
        error: Mapping[str, Any],
        retry: bool = False,
        *,
        outcome: Outcome = "failed",
    ) -> RunRecord:
        """The attempt failed. Queued again if `retry` and attempts are left; else failed for good, or
        cancelled if that was asked for meanwhile. Raises LeaseLost.

        Args:
            outcome: ``timed_out`` for one that was stopped because it took too long.
        """
        with self._database.write(news=True) as connection:
            run = _owned(connection, run_id, worker_id)
            add_attempt(connection, run, outcome, error)
            if run.cancel_requested:
                return _finish(connection, run_id, worker_id, "cancelled", error=error)
            if retry and run.attempt < run.max_attempts:
                return _requeue(connection, run_id, worker_id, error=dict(error))
            return _finish(connection, run_id, worker_id, "failed", error=error)

    def release(self, run_id: str, worker_id: str) -> RunRecord:
        """Give up an unfinished run: stopped on request, or handed back by a worker that drains.

        It ends as cancelled while that is wanted. Otherwise it is queued again, and does not count as an
        attempt: a caller who has attached since gets no cancellation that somebody else asked for. Raises
        LeaseLost.
        """
        with self._database.write(news=True) as connection:
            run = _owned(connection, run_id, worker_id)
            add_attempt(connection, run, "cancelled" if run.cancel_requested else "released")
            if run.cancel_requested:
                return _finish(connection, run_id, worker_id, "cancelled", error=None)
            return _requeue(connection, run_id, worker_id, attempt=run.attempt - 1)


def _owned(connection: Connection, run_id: str, worker_id: str) -> RunRecord:
    row = connection.execute(_LOOK, {"run": run_id, "owner": worker_id}).one_or_none()
    if row is None:
        raise _lost(run_id, worker_id)
    return to_run(row)


def _finish(
    connection: Connection,
    run_id: str,
    worker_id: str,
    state: str,
    *,
    error: Mapping[str, Any] | None = None,
    timings: Mapping[str, float] | None = None,
    warnings: Sequence[str] = (),
    progress: tuple[str, int, int] | None = None,
) -> RunRecord:
    values = {
        "state": state,
        "error": dict(error) if error is not None else None,
        "timings": dict(timings) if timings is not None else None,
        "warnings": list(warnings) or None,
        **(dict(zip(("stage", "step", "total"), progress, strict=True)) if progress else {}),
    }
    row = connection.execute(_FINISH, {"run": run_id, "owner": worker_id, **values}).one_or_none()
    if row is None:
        raise _lost(run_id, worker_id)
    return to_run(row)


def _requeue(connection: Connection, run_id: str, worker_id: str, **values: Any) -> RunRecord:
    return to_run(connection.execute(_REQUEUE, {"run": run_id, "owner": worker_id, **values}).one())


def _compare_with_earlier(connection: Connection, run: RunRecord, digests: Mapping[str, str]) -> None:
    if run.memo_key is None:
        return
    earlier = connection.execute(_EARLIER, {"key": run.memo_key, "run": run.id}).scalar_one_or_none()
    if earlier is None:
        return
    before = {slot: ref.digest for slot, ref in roles(connection, earlier, "generated").items()}
    if before != dict(digests):
        details = {"earlier": before, "now": dict(digests)}
        add_incident(
            connection, "determinism", run.id, details, memo_key=run.memo_key, earlier_run_id=earlier
        )


def _lost(run_id: str, worker_id: str) -> LeaseLost:
    return LeaseLost(
        f"run {run_id} does not belong to worker {worker_id} any more: its result is discarded "
        "(raise MUTOSCOPE_LEASE_SECONDS if the worker was merely slow)"
    )
