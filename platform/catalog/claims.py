"""What a worker does to runs: claim with a lease, renew, report.

A run belongs to the worker named in its row while its state is ``running``. Every report checks that in the same
transaction, so a worker that lost its lease cannot overwrite what its successor does. Lease times are written and
compared by the database's clock alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, insert, or_, select, update

from mutoscope.platform.catalog.artifacts import record_all
from mutoscope.platform.catalog.clock import now
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.edges import RUN_COLUMNS, add_edges, roles, to_run
from mutoscope.platform.catalog.records import RenewResult, RunRecord
from mutoscope.platform.catalog.tables import incidents, runs
from mutoscope.platform.errors import LeaseLost
from mutoscope.platform.ids import new_id
from mutoscope.platform.refs import ArtifactRef


class Claims:
    """The worker's half of `catalog.runs`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def claim(
        self,
        worker_id: str,
        cards: Mapping[str, str],
        lease_seconds: float,
        limit: int = 1,
        *,
        card_digests: Mapping[str, str] | None = None,
    ) -> list[RunRecord]:
        """Take up to `limit` runs: queued ones, and running ones whose lease ran out.

        By priority, then age. A run that has used up its attempts is failed instead, one whose cancellation was
        requested is cancelled. An idle call costs one read and no lock.

        Args:
            cards: card id to the digest of the numeric contract this worker runs it under; others are left alone.
            card_digests: card id to the digest of its code here. If given, a run queued for other code is left alone
                too: its memo key would name an output that this code did not make.
        """
        if not cards or limit < 1:
            return []
        servable = and_(_claimable(worker_id), or_(*_matches(cards, card_digests)))
        with self._database.read() as connection:
            if connection.execute(select(runs.c.id).where(servable).limit(1)).first() is None:
                return []
        with self._database.write() as connection:
            _end_hopeless(connection, servable)
            queue = (
                select(runs.c.id)
                .where(servable)
                .order_by(runs.c.priority.desc(), runs.c.created_at, runs.c.id)
                .limit(limit)
                .with_for_update(skip_locked=True)  # Postgres: claimants pass each other; SQLite has one writer anyway
            )
            ids = list(connection.execute(queue).scalars())
            return [_take(connection, run_id, worker_id, lease_seconds) for run_id in ids]

    def renew(self, worker_id: str, run_ids: Iterable[str], lease_seconds: float) -> RenewResult:
        """Extend the leases of the worker's runs; says which are lost and which should stop."""
        wanted = frozenset(run_ids)
        if not wanted:
            return RenewResult(frozenset(), frozenset())
        with self._database.write() as connection:
            rows = connection.execute(
                update(runs)
                .where(runs.c.id.in_(wanted), _owned_by(worker_id))
                .values(lease_expires_at=now() + lease_seconds)
                .returning(runs.c.id, runs.c.cancel_requested)
            ).all()
        kept = frozenset(row.id for row in rows)
        return RenewResult(wanted - kept, frozenset(row.id for row in rows if row.cancel_requested))

    def progress(self, run_id: str, worker_id: str, stage: str, step: int, total: int) -> bool:
        """Note where the run is: `step` finished work plans of `total`. False when it is no longer the worker's."""
        with self._database.write() as connection:
            result = connection.execute(
                update(runs)
                .where(runs.c.id == run_id, _owned_by(worker_id))
                .values(stage=stage, step=step, total=total)
            )
            return bool(result.rowcount)

    def succeed(
        self,
        run_id: str,
        worker_id: str,
        outputs: Mapping[str, ArtifactRef],
        timings: Mapping[str, float] | None = None,
    ) -> RunRecord:
        """Record outputs (their bytes are stored already), generated edges and the state, in one transaction.

        When an earlier success of the same memo key has other digests, both stand and a determinism incident is
        recorded.

        Raises:
            LeaseLost: the run is not the worker's; nothing is recorded.
        """
        with self._database.write() as connection:
            run = _finish(
                connection,
                run_id,
                worker_id,
                state="succeeded",
                timings=dict(timings) if timings is not None else None,
                error=None,
            )
            record_all(self._database, connection, outputs.values())
            digests = {slot: ref.digest for slot, ref in outputs.items()}
            add_edges(connection, run_id, "generated", digests)
            _compare_with_earlier(connection, run, digests)
        return run

    def fail(self, run_id: str, worker_id: str, error: Mapping[str, Any], retry: bool = False) -> RunRecord:
        """The attempt failed. Queued again if `retry` and attempts are left; else failed for good, or cancelled if
        that was asked for meanwhile. Raises LeaseLost."""
        with self._database.write() as connection:
            run = _owned(connection, run_id, worker_id)
            if run.cancel_requested:
                return _finish(connection, run_id, worker_id, state="cancelled", error=dict(error))
            if retry and run.attempt < run.max_attempts:
                return _requeue(connection, run_id, worker_id, error=dict(error))
            return _finish(connection, run_id, worker_id, state="failed", error=dict(error))

    def cancelled(self, run_id: str, worker_id: str) -> RunRecord:
        """The worker stopped the run on request. If a caller has attached since, it is queued again instead: nobody
        gets a cancellation that somebody else asked for. Raises LeaseLost."""
        with self._database.write() as connection:
            run = _owned(connection, run_id, worker_id)
            if run.cancel_requested:
                return _finish(connection, run_id, worker_id, state="cancelled", error=None)
            return _requeue(connection, run_id, worker_id, attempt=run.attempt - 1)

    def release(self, run_id: str, worker_id: str) -> RunRecord:
        """Hand an unfinished run back, as a draining worker does; it does not count as an attempt. Raises LeaseLost."""
        with self._database.write() as connection:
            run = _owned(connection, run_id, worker_id)
            return _requeue(connection, run_id, worker_id, attempt=run.attempt - 1)


def _owned_by(worker_id: str) -> ColumnElement[bool]:
    return and_(runs.c.state == "running", runs.c.worker == worker_id)


def _claimable(worker_id: str) -> ColumnElement[bool]:
    # A worker's own expired run is not up for grabs by itself: its next renewal keeps it, and claiming it again would
    # run it twice in one process.
    expired = and_(runs.c.state == "running", runs.c.lease_expires_at < now(), runs.c.worker != worker_id)
    return or_(runs.c.state == "queued", expired)


def _matches(
    cards: Mapping[str, str], card_digests: Mapping[str, str] | None
) -> Iterable[ColumnElement[bool]]:
    for card, contract in cards.items():
        same = and_(runs.c.card == card, runs.c.contract == contract)
        if card_digests is not None and card in card_digests:
            same = and_(same, runs.c.card_digest == card_digests[card])
        yield same


def _end_hopeless(connection: Connection, servable: ColumnElement[bool]) -> None:
    """Settle claimable runs that must not start again: cancelled by request, or out of attempts."""
    unowned = {"lease_expires_at": None, "finished_at": now()}
    connection.execute(
        update(runs).where(servable, runs.c.cancel_requested).values(state="cancelled", **unowned)
    )
    spent = and_(servable, runs.c.state == "running", runs.c.attempt >= runs.c.max_attempts)
    rows = connection.execute(select(runs.c.id, runs.c.attempt, runs.c.worker, runs.c.error).where(spent)).all()
    for row in rows:
        error = row.error or {
            "type": "LeaseExpired",
            "message": f"its worker {row.worker} went silent in attempt {row.attempt}, the last",
        }
        connection.execute(
            update(runs).where(runs.c.id == row.id).values(state="failed", error=error, **unowned)
        )


def _take(connection: Connection, run_id: str, worker_id: str, lease_seconds: float) -> RunRecord:
    row = connection.execute(
        update(runs)
        .where(runs.c.id == run_id)
        .values(
            state="running",
            worker=worker_id,
            attempt=runs.c.attempt + 1,
            lease_expires_at=now() + lease_seconds,
            started_at=now(),
            stage=None,
            step=None,
            total=None,
        )
        .returning(*RUN_COLUMNS)
    ).one()
    return to_run(row)


def _owned(connection: Connection, run_id: str, worker_id: str) -> RunRecord:
    query = select(*RUN_COLUMNS).where(runs.c.id == run_id, _owned_by(worker_id)).with_for_update()
    row = connection.execute(query).one_or_none()
    if row is None:
        raise _lost(run_id, worker_id)
    return to_run(row)


def _finish(connection: Connection, run_id: str, worker_id: str, **values: Any) -> RunRecord:
    row = connection.execute(
        update(runs)
        .where(runs.c.id == run_id, _owned_by(worker_id))
        .values(finished_at=now(), lease_expires_at=None, **values)
        .returning(*RUN_COLUMNS)
    ).one_or_none()
    if row is None:
        raise _lost(run_id, worker_id)
    return to_run(row)


def _requeue(connection: Connection, run_id: str, worker_id: str, **values: Any) -> RunRecord:
    row = connection.execute(
        update(runs)
        .where(runs.c.id == run_id, _owned_by(worker_id))
        .values(state="queued", worker=None, lease_expires_at=None, stage=None, step=None, total=None, **values)
        .returning(*RUN_COLUMNS)
    ).one()
    return to_run(row)


def _compare_with_earlier(connection: Connection, run: RunRecord, digests: Mapping[str, str]) -> None:
    if run.memo_key is None:
        return
    earlier = connection.execute(
        select(runs.c.id)
        .where(runs.c.memo_key == run.memo_key, runs.c.state == "succeeded", runs.c.id != run.id)
        .order_by(runs.c.finished_at, runs.c.id)
        .limit(1)
    ).scalar_one_or_none()
    if earlier is None:
        return
    before = {slot: ref.digest for slot, ref in roles(connection, earlier, "generated").items()}
    if before != dict(digests):
        connection.execute(
            insert(incidents).values(
                id=new_id(),
                kind="determinism",
                memo_key=run.memo_key,
                run_id=run.id,
                earlier_run_id=earlier,
                details={"earlier": before, "now": dict(digests)},
                created_at=now(),
            )
        )


def _lost(run_id: str, worker_id: str) -> LeaseLost:
    return LeaseLost(
        f"run {run_id} does not belong to worker {worker_id} any more: its result is discarded "
        "(raise MUTOSCOPE_LEASE_SECONDS if the worker was merely slow)"
    )
