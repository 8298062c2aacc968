"""Who executes a workflow run: started with a lease, renewed, declared crashed, started again, cancelled.

As with runs, the row is the truth and a lease says for how long its holder is believed to live. A row belongs
to one holder at a time: whoever starts it again becomes its holder, and the one before learns at its next
renewal that it has lost it. Everything that a decision changes is changed in one transaction.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, and_, bindparam, case, insert, or_, select, update

from mutoscope.platform.catalog.clock import now
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.records import RenewResult
from mutoscope.platform.catalog.tables import crashed, under_way, workflow_runs
from mutoscope.platform.catalog.waiting import leave_all
from mutoscope.platform.catalog.workflow_records import WorkflowRecord, to_workflow_run
from mutoscope.platform.errors import CatalogUnavailable, InvalidParameter, LeaseLost
from mutoscope.platform.ids import new_id

_THIS = workflow_runs.c.id == bindparam("run")
_EXPIRED = and_(under_way, workflow_runs.c.lease_expires_at < now())
_LEASE = now() + bindparam("seconds")

_INSERT = insert(workflow_runs).values(state="running", created_at=now())
_EARLIER = (
    select(workflow_runs.c.id, workflow_runs.c.holder, and_(under_way, ~_EXPIRED).label("live"))
    .where(
        workflow_runs.c.prefect_flow_run_id == bindparam("flow_run"),
        workflow_runs.c.workflow == bindparam("name"),
        # One that never had a holder is not watched over, so nobody can tell whether it lives.
        workflow_runs.c.holder.is_not(None),
    )
    .order_by(workflow_runs.c.created_at.desc(), workflow_runs.c.id.desc())
    .limit(1)
    .with_for_update()
)
_GOES_ON = or_(
    # Suspended, or the start of this very process whose answer was lost on the way.
    and_(under_way, workflow_runs.c.lease_expires_at.is_(None)),
    workflow_runs.c.holder == bindparam("owner"),
)
_AGAIN = (
    update(workflow_runs)
    .where(_THIS)
    .values(
        state="running",
        attempt=workflow_runs.c.attempt + case((_GOES_ON, 0), else_=1),
        holder=bindparam("owner"),
        lease_expires_at=_LEASE,
        # Wanted again; but a wish to stop that nobody has heeded yet holds for the next attempt too.
        cancel_requested=and_(
            workflow_runs.c.cancel_requested, workflow_runs.c.state.in_(("running", "crashed"))
        ),
        outputs=None,
        finished_at=None,  # the error stays, until this attempt has an end of its own
    )
)
_PARENT = (
    select(workflow_runs.c.cancel_requested)
    .where(_THIS)
    # Waits for a cancellation of the parent that is being written, and keeps a later one waiting: a child
    # is either found by the cancellation, or finds it.
    .with_for_update(read=True)
)
_RENEW = (
    update(workflow_runs)
    .where(
        workflow_runs.c.id.in_(bindparam("wanted", expanding=True)),
        under_way,
        workflow_runs.c.holder == bindparam("owner"),
    )
    .values(lease_expires_at=_LEASE)
    .returning(workflow_runs.c.id, workflow_runs.c.cancel_requested)
)
_RECLAIM = (
    update(workflow_runs)
    .where(_THIS, workflow_runs.c.state == "crashed", workflow_runs.c.holder == bindparam("owner"))
    .values(state="running", error=None, finished_at=None, lease_expires_at=_LEASE)
)
_HELD = select(workflow_runs.c.id).where(
    _THIS,
    under_way,
    or_(workflow_runs.c.holder == bindparam("owner"), workflow_runs.c.holder.is_(None)),
)
_PARK = update(workflow_runs).where(_THIS, under_way).values(lease_expires_at=None)
_HAND_BACK = (
    update(workflow_runs)
    .where(_THIS, under_way, workflow_runs.c.holder == bindparam("owner"))
    .values(lease_expires_at=now(), attempt=workflow_runs.c.attempt - 1)
)
_OVERDUE = select(workflow_runs).where(_EXPIRED).order_by(workflow_runs.c.created_at)
_DECLARE_ENDED = (
    update(workflow_runs)
    .where(_THIS, _EXPIRED)
    .values(
        state=case(
            (or_(workflow_runs.c.cancel_requested, bindparam("cancel")), "cancelled"), else_="crashed"
        ),
        finished_at=now(),
        lease_expires_at=None,
    )
    .returning(workflow_runs)
)
_CRASHED = (
    select(workflow_runs)
    .where(
        crashed,
        workflow_runs.c.prefect_deployment.is_not(None),
        workflow_runs.c.cancel_requested.is_(False),
        workflow_runs.c.attempt < workflow_runs.c.max_attempts,
    )
    .order_by(workflow_runs.c.created_at.desc())
)
_STOP = (
    update(workflow_runs)
    # A crashed one may be about to start again: it learns of the wish then.
    .where(or_(under_way, crashed))
    .values(cancel_requested=True)
    .returning(workflow_runs.c.id)
)
_STOP_THIS = _STOP.where(_THIS)
_CHILDREN = select(workflow_runs.c.id).where(
    workflow_runs.c.parent_id.in_(bindparam("parents", expanding=True))
)
_STOP_CHILDREN = _STOP.where(workflow_runs.c.parent_id.in_(bindparam("parents", expanding=True)))


class WorkflowLeases:
    """The executing process's half of `catalog.workflows`, and that of whoever watches over it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def start(
        self,
        workflow: str,
        parameters: Mapping[str, Any],
        parent_id: str | None = None,
        prefect_flow_run_id: str | None = None,
        *,
        holder: str | None = None,
        lease_seconds: float | None = None,
        max_attempts: int = 1,
        time_limit_seconds: float | None = None,
        prefect_deployment: str | None = None,
    ) -> str:
        """Open a workflow run, state ``running``; returns its id.

        When the same Prefect flow run was started before, its row is opened again as the next attempt: its
        process died, or somebody retried it. The recorded parameters stay, drawn seed and all, so whoever
        executes it must read them from there.

        Args:
            holder: the process that executes it. lease_seconds: how long it is believed to live without a
                renewal; both or neither.
            max_attempts: times it may be started before it is given up.
            time_limit_seconds: how long one attempt may take.
            prefect_deployment: what launched it.

        Raises:
            LeaseLost: another process executes that flow run.
        """
        if (holder is None) != (lease_seconds is None):
            raise InvalidParameter("lease_seconds", lease_seconds, "a holder needs a lease, and a lease one")
        with self._database.write() as connection:
            lease = {"holder": holder, "seconds": lease_seconds}
            if prefect_flow_run_id is not None and holder is not None:
                again = _start_again(connection, prefect_flow_run_id, workflow, lease)
                if again is not None:
                    return again
            run_id = new_id()
            stopped = parent_id is not None and connection.execute(_PARENT, {"run": parent_id}).scalar()
            statement = _INSERT.values(lease_expires_at=_LEASE) if holder is not None else _INSERT
            connection.execute(
                statement,
                {
                    **(lease if holder is not None else {}),
                    "id": run_id,
                    "workflow": workflow,
                    "parameters": dict(parameters),
                    "parent_id": parent_id,
                    "prefect_flow_run_id": prefect_flow_run_id,
                    "max_attempts": max_attempts,
                    "time_limit_seconds": time_limit_seconds,
                    "prefect_deployment": prefect_deployment,
                    "cancel_requested": bool(stopped),
                },
            )
        return run_id

    def renew(self, run_ids: Iterable[str], holder: str, lease_seconds: float) -> RenewResult:
        """Extend the leases of the holder's workflow runs; says which are lost (ended, or another's now) and
        which should stop."""
        wanted = frozenset(run_ids)
        if not wanted:
            return RenewResult(frozenset(), frozenset())
        parameters = {"wanted": sorted(wanted), "owner": holder, "seconds": lease_seconds}
        with self._database.write() as connection:
            rows = connection.execute(_RENEW, parameters).all()
        kept = frozenset(row.id for row in rows)
        return RenewResult(wanted - kept, frozenset(row.id for row in rows if row.cancel_requested))

    def reclaim(self, run_id: str, holder: str, lease_seconds: float) -> bool:
        """Go on with a run that was declared crashed, and not started by anybody else: its holder was merely
        silent. False when it cannot be had back."""
        with self._database.write() as connection:
            back = {"run": run_id, "owner": holder, "seconds": lease_seconds}
            return connection.execute(_RECLAIM, back).rowcount == 1

    def park(self, run_id: str) -> None:
        """The run is suspended: no process executes it, and none is missed until one starts it again."""
        with self._database.write() as connection:
            connection.execute(_PARK, {"run": run_id})

    def hand_back(self, run_id: str, holder: str) -> None:
        """Its process was told to end: whoever watches over leases need not wait. Does not count as an
        attempt."""
        with self._database.write() as connection:
            connection.execute(_HAND_BACK, {"run": run_id, "owner": holder})

    def expired(self, limit: int = 100) -> builtins.list[WorkflowRecord]:
        """Those whose holder went silent, oldest first."""
        with self._database.glance() as connection:
            return [to_workflow_run(row) for row in connection.execute(_OVERDUE.limit(limit))]

    def take_expired(
        self, run_id: str, error: Mapping[str, Any], *, cancel: bool = False
    ) -> WorkflowRecord | None:
        """Declare one of those crashed, or cancelled if somebody wanted that, and release the calls it waited
        for. Of several who try, one gets the record, the others None; so does whoever is too late because
        its holder renewed.

        Args:
            error: what is known of its end.
            cancel: it is not to go on, and runs that nobody else waits for stop; otherwise they go on, and
                the next attempt attaches.
        """
        with self._database.write(news=True) as connection:
            ended = {"run": run_id, "cancel": cancel, "error": dict(error)}
            row = connection.execute(_DECLARE_ENDED, ended).one_or_none()
            if row is None:
                return None
            record = to_workflow_run(row)
            leave_all(connection, [run_id], cancel=record.state == "cancelled")
        return record

    def restartable(self, limit: int = 100) -> builtins.list[WorkflowRecord]:
        """Crashed ones that may start again, newest first: what is left to do if whoever declared one crashed
        died before it had it launched."""
        with self._database.glance() as connection:
            return [to_workflow_run(row) for row in connection.execute(_CRASHED.limit(limit))]

    def request_cancel(self, run_id: str) -> builtins.list[str]:
        """The workflow run and all it started are to stop, and no longer wait for any run.

        A run that nobody else waits for ends with them: one that is queued at once, one that is running when
        its worker learns of it.

        Returns:
            The workflow runs that were under way; their processes learn of it when they renew.
        """
        with self._database.write(news=True) as connection:
            stopped = list(connection.execute(_STOP_THIS, {"run": run_id}).scalars())
            below, reached = [run_id], [run_id]
            # Level by level, parents before children: see `_PARENT`.
            while below:
                stopped += connection.execute(_STOP_CHILDREN, {"parents": below}).scalars()
                below = list(connection.execute(_CHILDREN, {"parents": below}).scalars())
                reached += below
            leave_all(connection, reached, cancel=True)
        return stopped

    def abandon(self, run_id: str, *, cancel: bool) -> None:
        """Release what the workflow run still waits for: whoever waited is dead.

        Args:
            cancel: see `take_expired`.
        """
        with self._database.write(news=True) as connection:
            leave_all(connection, [run_id], cancel=cancel)


def _start_again(
    connection: Connection, flow_run: str, workflow: str, lease: Mapping[str, Any]
) -> str | None:
    earlier = connection.execute(_EARLIER, {"flow_run": flow_run, "name": workflow}).one_or_none()
    if earlier is None:
        return None
    if earlier.live and earlier.holder != lease["holder"]:
        raise LeaseLost(
            f"workflow run {earlier.id} is executed by {earlier.holder}: a second process must leave it alone"
        )
    found: str = earlier.id
    owner = {"run": found, "owner": lease["holder"], "seconds": lease["seconds"]}
    connection.execute(_AGAIN, owner)
    # Whatever the attempt before still waited for has lost its caller; the runs go on for this one.
    leave_all(connection, [found], cancel=False)
    return found


def require_held(connection: Connection, run_id: str, holder: str) -> None:
    """Refuse what is done for a workflow run by a process that does not hold it any more.

    Raises:
        CatalogUnavailable: so that whoever asks tries again: the run may be reclaimed yet, or else the thread
            that keeps its lease says within moments that it is lost.
    """
    if connection.execute(_HELD, {"run": run_id, "owner": holder}).first() is None:
        raise CatalogUnavailable(
            f"workflow run {run_id} is not held by {holder}: another process has taken it over"
        )
