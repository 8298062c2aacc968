"""What a worker does to runs: claim with a lease, renew, report.

A run belongs to the worker named in its row while its state is ``running``. Every report checks that in the
same transaction, so a worker that lost its lease cannot overwrite what its successor does. Lease times are
written and compared by the database's clock alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, and_, bindparam, or_, select, tuple_, update

from mutoscope.platform.catalog.artifacts import record_all
from mutoscope.platform.catalog.attempts import Outcome, add_attempt
from mutoscope.platform.catalog.clock import now
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.edges import add_edges, roles, to_run
from mutoscope.platform.catalog.incidents import add_incident
from mutoscope.platform.catalog.members import Members, record_members
from mutoscope.platform.catalog.records import RenewResult, RunRecord, Standing
from mutoscope.platform.catalog.tables import in_flight, runs
from mutoscope.platform.errors import InvalidParameter, LeaseLost
from mutoscope.platform.refs import ArtifactRef

_OWNED = and_(runs.c.id == bindparam("run"), runs.c.state == "running", runs.c.worker == bindparam("owner"))

# A worker's own expired run is not up for grabs by itself: its next renewal keeps it, and claiming it again
# would run it twice in one process.
_EXPIRED = and_(
    runs.c.state == "running", runs.c.lease_expires_at < now(), runs.c.worker != bindparam("owner")
)
_CLAIMABLE = and_(
    in_flight,
    or_(runs.c.state == "queued", _EXPIRED),
    tuple_(runs.c.card, runs.c.contract).in_(bindparam("served", expanding=True)),
    # For a card whose code digest the worker does not state, any code will do.
    or_(
        tuple_(runs.c.card, runs.c.card_digest).in_(bindparam("coded", expanding=True)),
        runs.c.card.in_(bindparam("uncoded", expanding=True)),
    ),
)

_ANY = select(runs.c.id).where(_CLAIMABLE).limit(1)
_NEXT = (
    select(runs)
    .where(_CLAIMABLE)
    .order_by(runs.c.priority.desc(), runs.c.created_at, runs.c.id)
    .limit(1)
    # Postgres: claimants pass each other. SQLite has one writer at a time anyway.
    .with_for_update(skip_locked=True)
)
_NEXT_OF_OTHERS = _NEXT.where(
    runs.c.priority == bindparam("level"),
    or_(runs.c.workflow_run_id.is_(None), runs.c.workflow_run_id.not_in(bindparam("busy", expanding=True))),
)
_END = update(runs).where(runs.c.id == bindparam("run")).values(lease_expires_at=None, finished_at=now())
_TAKE = (
    update(runs)
    .where(runs.c.id == bindparam("run"))
    .values(
        state="running",
        attempt=runs.c.attempt + 1,
        lease_expires_at=now() + bindparam("seconds"),
        started_at=now(),
        stage=None,
        step=None,
        total=None,
    )
    .returning(runs)
)
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
        also: Iterable[tuple[str, str]] = (),
        busy: Iterable[str] = (),
    ) -> list[RunRecord]:
        """Take up to `limit` runs: queued ones, and running ones whose lease ran out.

        By priority, then age; but of equal priority, runs of workflow runs that the worker does not serve yet
        go first, so that one with a long queue does not keep the others out. A run that has used up its
        attempts is failed instead, one whose cancellation was requested is cancelled. An idle call costs one
        read and no lock.

        Args:
            cards: card id to the digest of the numeric contract this worker runs it under. Other runs are
                left alone.
            card_digests: card id to the digest of its code here. A run queued for other code is left alone
                too: its memo key names an output that this code does not make. A card not listed is taken
                whatever its code.
            also: further pairs of card id, one of `cards`, and contract that this worker can keep.
            busy: workflow runs of which the worker serves a run.
        """
        if not cards or limit < 1:
            return []
        if lease_seconds <= 0:
            raise InvalidParameter("lease_seconds", lease_seconds, "use a positive number of seconds")
        digests = card_digests or {}
        which = {
            "owner": worker_id,
            "served": [*cards.items(), *also],
            "coded": [(card, digests[card]) for card in cards if card in digests],
            "uncoded": [card for card in cards if card not in digests],
        }
        with self._database.glance() as connection:
            if connection.execute(_ANY, which).first() is None:
                return []
        with self._database.write() as connection:
            return _take_next(connection, which, lease_seconds, limit, set(busy))

    def renew(self, worker_id: str, run_ids: Iterable[str], lease_seconds: float) -> RenewResult:
        """Extend the leases of the worker's runs; says which are lost and which should stop."""
        wanted = frozenset(run_ids)
        if not wanted:
            return RenewResult(frozenset(), frozenset())
        parameters = {"wanted": list(wanted), "owner": worker_id, "seconds": lease_seconds}
        with self._database.write() as connection:
            rows = connection.execute(_RENEW, parameters).all()
        kept = frozenset(row.id for row in rows)
        return RenewResult(wanted - kept, frozenset(row.id for row in rows if row.cancel_requested))

    def progress(self, run_id: str, worker_id: str, stage: str, step: int, total: int) -> Standing:
        """Note where the run is: `step` finished work plans of `total`.

        Returns:
            How the worker stands with it, so that one that reports often learns at once what a renewal would
            tell it later: ``kept``, ``cancel`` (it should stop) or ``lost`` (the run is another's).
        """
        with self._database.write() as connection:
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
    ) -> RunRecord:
        """Record outputs (their bytes are stored already), generated edges and the state, in one transaction.

        When an earlier success of the same memo key has other digests, both stand and a determinism incident
        is recorded.

        Args:
            members: what the containers among the outputs hold, by the container's digest.
            warnings: lines that the run's user should read all the same.

        Raises:
            LeaseLost: the run is not the worker's; nothing is recorded.
        """
        digests = {slot: ref.digest for slot, ref in outputs.items()}
        with self._database.write(news=True) as connection:
            run = _finish(connection, run_id, worker_id, "succeeded", timings=timings, warnings=warnings)
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


def _take_next(
    connection: Connection, which: Mapping[str, Any], seconds: float, limit: int, busy: set[str]
) -> list[RunRecord]:
    """Take the next `limit` runs. Those that must not start again are settled on the way and do not count."""
    taken: list[RunRecord] = []
    while len(taken) < limit and (run := _due(connection, which, busy)) is not None:
        if run.state == "running":
            add_attempt(connection, run, "expired", _silence(run))
        if not _settled(connection, run):
            taken.append(_take(connection, run.id, which["owner"], seconds))
            busy |= {run.workflow_run_id} if run.workflow_run_id else set()
    return taken


def _due(connection: Connection, which: Mapping[str, Any], busy: set[str]) -> RunRecord | None:
    """The oldest claimable run of the highest priority that there is; of a workflow run that is busy only if
    no other has one."""
    row = connection.execute(_NEXT, which).one_or_none()
    if row is not None and row.workflow_run_id in busy:
        others = {**which, "level": row.priority, "busy": list(busy)}
        row = connection.execute(_NEXT_OF_OTHERS, others).one_or_none() or row
    return None if row is None else to_run(row)


def _settled(connection: Connection, run: RunRecord) -> bool:
    """End a claimable run that was cancelled by request, or whose last attempt went silent."""
    if run.cancel_requested:
        connection.execute(_END, {"run": run.id, "state": "cancelled"})
        return True
    if run.state == "running" and run.attempt >= run.max_attempts:
        connection.execute(_END, {"run": run.id, "state": "failed", "error": run.error or _silence(run)})
        return True
    return False


def _silence(run: RunRecord) -> dict[str, Any]:
    last = ", the last" if run.attempt >= run.max_attempts else ""
    message = f"its worker {run.worker} went silent in attempt {run.attempt}{last}"
    return {"type": "LeaseExpired", "message": message}


def _take(connection: Connection, run_id: str, worker_id: str, seconds: float) -> RunRecord:
    return to_run(connection.execute(_TAKE, {"run": run_id, "worker": worker_id, "seconds": seconds}).one())


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
) -> RunRecord:
    values = {
        "state": state,
        "error": dict(error) if error is not None else None,
        "timings": dict(timings) if timings is not None else None,
        "warnings": list(warnings) or None,
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
