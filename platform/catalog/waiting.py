"""Callers that leave: each call counts among its run's waiters once, and leaves them once.

Two may say that the same caller is gone: the caller itself, and whoever cancels its workflow or finds its
process dead. `calls.left_at` is set by the first of them; only that one takes a waiter off the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from sqlalchemy import Boolean, Connection, and_, bindparam, case, or_, select, update

from mutoscope.platform.batches import batched
from mutoscope.platform.catalog.clock import now
from mutoscope.platform.catalog.tables import calls, in_flight, runs

_BATCH = 500

_OPEN = and_(calls.c.left_at.is_(None), calls.c.run_id.in_(select(runs.c.id).where(in_flight)))
_LEAVE = update(calls).values(left_at=now()).returning(calls.c.run_id)
_LEAVE_ONE = _LEAVE.where(calls.c.id == bindparam("call"), calls.c.left_at.is_(None))
_LEAVE_OF = _LEAVE.where(calls.c.workflow_run_id.in_(bindparam("workflows", expanding=True)), _OPEN)

_fewer = runs.c.waiters - bindparam("gone")
_nobody_left = and_(bindparam("cancel", type_=Boolean()), _fewer <= 0)
_RELEASE = (
    update(runs)
    .where(runs.c.id == bindparam("run"), in_flight)
    .values(
        waiters=case((_fewer < 0, 0), else_=_fewer),
        cancel_requested=or_(runs.c.cancel_requested, _nobody_left),
    )
)
_END_QUEUED = (
    update(runs)
    .where(
        runs.c.id.in_(bindparam("wanted", expanding=True)), runs.c.state == "queued", runs.c.cancel_requested
    )
    .values(state="cancelled", finished_at=now())
)


def leave(connection: Connection, call: int) -> str | None:
    """One caller no longer waits. Returns the run it waited for; None if it had left before."""
    run = connection.execute(_LEAVE_ONE, {"call": call}).scalar_one_or_none()
    if run is not None:
        _release(connection, [run], cancel=True)
    return run


def leave_all(connection: Connection, workflow_runs: Sequence[str], *, cancel: bool) -> None:
    """Every call that these workflow runs still wait for is left.

    Args:
        cancel: runs that nobody waits for any more are to stop; otherwise they go on, for a caller who will
            attach.
    """
    left: list[str] = []
    for batch in batched(workflow_runs, _BATCH):
        left += connection.execute(_LEAVE_OF, {"workflows": list(batch)}).scalars()
    _release(connection, left, cancel=cancel)


def _release(connection: Connection, left: Iterable[str], *, cancel: bool) -> None:
    """Take callers off their runs; `left` names a run once per caller."""
    gone = Counter(left)
    if not gone:
        return
    # In one order everywhere: two that release the same runs wait for each other, never in a circle.
    ordered = sorted(gone)
    connection.execute(_RELEASE, [{"run": run, "gone": gone[run], "cancel": cancel} for run in ordered])
    if cancel:
        for batch in batched(ordered, _BATCH):
            connection.execute(_END_QUEUED, {"wanted": list(batch)})
