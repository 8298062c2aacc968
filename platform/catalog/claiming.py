"""How runs are claimed: look at the head of the queue, choose by the rules of `routing`, take.

Mostly that is two statements, the look without any lock and one that takes: of the runs chosen, the first so
many that are still there. Claimants that chose the same pass each other, so none waits for another.

What needs more than taking is done in a transaction that holds the head of the queue: runs whose worker went
silent or that somebody cancelled, cards with a limit, and a head that one workflow run has to itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    Boolean,
    Connection,
    Function,
    String,
    and_,
    bindparam,
    func,
    or_,
    select,
    tuple_,
    update,
)

from mutoscope.platform.catalog.attempts import add_attempt
from mutoscope.platform.catalog.clock import now
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.edges import to_run
from mutoscope.platform.catalog.records import RunRecord
from mutoscope.platform.catalog.routing import Candidate, Claimant, in_order, is_crowded
from mutoscope.platform.catalog.tables import in_flight, queues, runs

HEAD = 32
"""Runs that are looked at, at least: `HEAD_PER_RUN` for each that may be taken."""
HEAD_PER_RUN = 4
SPARE = 2
"""Runs that are chosen for each that may be taken: others may be faster with some of them."""
TRIES = 3
"""Times that others may have been faster with all of them."""

# A worker's own expired run is not up for grabs by itself: its next renewal keeps it, and claiming it again
# would run it twice in one process.
_EXPIRED = and_(
    bindparam("expired", type_=Boolean()),
    runs.c.state == "running",
    runs.c.lease_expires_at < now(),
    runs.c.worker != bindparam("owner"),
)
_FOR_ITS_CODE = and_(
    tuple_(runs.c.card, runs.c.contract).in_(bindparam("served", expanding=True)),
    # For a card whose code digest the worker does not state, any code will do.
    or_(
        tuple_(runs.c.card, runs.c.card_digest).in_(bindparam("coded", expanding=True)),
        runs.c.card.in_(bindparam("uncoded", expanding=True)),
    ),
)
_FITS = or_(runs.c.weights_bytes.is_(None), runs.c.weights_bytes <= bindparam("memory"))
_NOT_LEFT_TO_OTHERS = or_(
    runs.c.weights_key.is_(None),
    runs.c.weights_key.not_in(bindparam("elsewhere", expanding=True)),
    runs.c.created_at < now() - bindparam("patience"),
)
_CLAIMABLE = and_(
    in_flight,
    or_(runs.c.state == "queued", _EXPIRED),
    _FOR_ITS_CODE,
    _FITS,
    _NOT_LEFT_TO_OTHERS,
    runs.c.card.not_in(select(queues.c.card).where(queues.c.paused)),
)
_CANDIDATE = (
    runs.c.id,
    runs.c.card,
    runs.c.state,
    runs.c.priority,
    runs.c.created_at,
    runs.c.workflow_run_id,
    runs.c.weights_key,
    runs.c.cancel_requested,
)
_ORDER = (runs.c.priority.desc(), runs.c.created_at, runs.c.id)
"""The order of the index of the queue, which serves it without sorting."""

_LIMITED = select(queues.c.card).where(queues.c.most_running.is_not(None)).exists()
_LOOK = select(*_CANDIDATE).where(_CLAIMABLE).order_by(*_ORDER).limit(bindparam("head"))
_LOOK_FREELY = _LOOK.add_columns(_LIMITED)
_HOLD = (
    _LOOK
    # A run that changes hands runs already.
    .where(or_(runs.c.state == "running", runs.c.card.not_in(bindparam("full", expanding=True))))
    # Postgres: claimants pass each other. SQLite has one writer at a time anyway.
    .with_for_update(skip_locked=True)
)
_HOLD_OF_OTHERS = _HOLD.where(
    runs.c.priority == bindparam("level"),
    or_(runs.c.workflow_run_id.is_(None), runs.c.workflow_run_id.not_in(bindparam("busy", expanding=True))),
)

# Whoever claims runs of limited cards does so one at a time, so that two cannot both see the last place free.
_LIMITS = (
    select(queues.c.card, queues.c.most_running)
    .where(queues.c.most_running.is_not(None))
    .order_by(queues.c.card)
    .with_for_update()
)
_RUNNING = (
    select(runs.c.card, func.count())
    # Not "is running": that would lead Postgres through another index, of all runs there ever were.
    .where(in_flight, runs.c.state != "queued", runs.c.card.in_(bindparam("cards", expanding=True)))
    .group_by(runs.c.card)
)
_TAKEN: Mapping[str, Any] = {
    "state": "running",
    "worker": bindparam("owner"),
    "attempt": runs.c.attempt + 1,
    "lease_expires_at": now() + bindparam("seconds"),
    "started_at": now(),
    "stage": None,
    "step": None,
    "total": None,
}
_THIS = runs.c.id == bindparam("run")
_GET = select(runs).where(_THIS)
_TAKE = update(runs).where(_THIS).values(**_TAKEN).returning(runs)
_END = update(runs).where(_THIS).values(lease_expires_at=None, finished_at=now())

_UNLIMITED = 2**62


def take_some(
    database: Database, claimant: Claimant, seconds: float, limit: int, busy: Collection[str]
) -> list[RunRecord]:
    """Take up to `limit` runs. Those that must not start again are settled on the way and do not count.

    Args:
        seconds: of the leases.
        busy: workflow runs that the worker serves.
    """
    parameters = {**_parameters(claimant), "seconds": seconds, "head": max(HEAD, HEAD_PER_RUN * limit)}
    for _ in range(TRIES):
        with database.glance() as connection:
            rows = connection.execute(_LOOK_FREELY, parameters).all()
        if not rows:
            return []
        head, limited = [Candidate(*row[:-1]) for row in rows], rows[0][-1]
        crowded = len(head) == parameters["head"] and is_crowded(head, busy)
        if limited or crowded or not all(one.plain for one in head):
            break
        chosen = [one.id for one in in_order(head, claimant, busy, SPARE * limit)]
        taken = _take_first(database, chosen, limit, parameters)
        if taken:
            return taken
    with database.write() as connection:
        return _take_carefully(connection, claimant, limit, set(busy), parameters)


def _parameters(claimant: Claimant) -> dict[str, Any]:
    return {
        "owner": claimant.worker,
        "served": claimant.served,
        "coded": claimant.coded,
        "uncoded": claimant.uncoded,
        "elsewhere": sorted(claimant.elsewhere - claimant.resident),
        "memory": _UNLIMITED if claimant.memory_bytes is None else claimant.memory_bytes,
        "patience": claimant.patience,
        "expired": claimant.expired,
    }


def _take_first(
    database: Database, chosen: Sequence[str], limit: int, parameters: Mapping[str, Any]
) -> list[RunRecord]:
    """Take the first `limit` of the runs that are still there, in one statement."""
    ranking = " ".join(chosen)
    given = {**parameters, "chosen": list(chosen), "ranking": ranking, "most": limit}
    with database.stroke() as connection:
        rows = connection.execute(_TAKE_FIRST[database.is_sqlite], given).all()
    return sorted(map(to_run, rows), key=lambda run: ranking.index(run.id))


def _take_first_by(place_in: Function[int]) -> Any:
    """The statement, given what tells where an id stands in the ranking."""
    first = (
        select(_still.c.id)
        .where(
            _still.c.id.in_(bindparam("chosen", expanding=True)),
            _still.c.state == "queued",
            _still.c.cancel_requested.is_(False),
        )
        .order_by(place_in)
        .limit(bindparam("most"))
        .with_for_update(skip_locked=True)
        # A table of its own: as a condition it could be asked again for each row, and lock others every time.
        .cte("first")
    )
    return update(runs).where(runs.c.id == first.c.id).values(**_TAKEN).returning(runs)


_still = runs.alias("still")
_ranking = bindparam("ranking", type_=String())
_TAKE_FIRST = {
    True: _take_first_by(func.instr(_ranking, _still.c.id)),
    False: _take_first_by(func.strpos(_ranking, _still.c.id)),
}
"""By whether the database is SQLite."""


def _take_carefully(
    connection: Connection, claimant: Claimant, limit: int, busy: set[str], parameters: Mapping[str, Any]
) -> list[RunRecord]:
    places = _places(connection)
    taken: list[RunRecord] = []
    while len(taken) < limit:
        full = [card for card, free in places.items() if free <= 0]
        head = _held(connection, busy, {**parameters, "full": full})
        if not head:
            break
        # Each turn takes or settles at least the first: its card had a place when the head was read.
        for one in in_order(head, claimant, busy, limit - len(taken)):
            if one.state == "queued" and places.get(one.card, 1) <= 0:
                continue
            run = _take_or_settle(connection, one, parameters)
            if one.card in places:
                places[one.card] -= int(run is not None) - int(one.state == "running")
            if run is not None:
                taken.append(run)
                busy |= {run.workflow_run_id} if run.workflow_run_id else set()
    return taken


def _places(connection: Connection) -> dict[str, int]:
    """How many more runs of each limited card may start. Until the transaction ends nobody else starts
    any."""
    limits = {row.card: row.most_running for row in connection.execute(_LIMITS)}
    if not limits:
        return {}
    running = {row[0]: row[1] for row in connection.execute(_RUNNING, {"cards": list(limits)})}
    return {card: most - running.get(card, 0) for card, most in limits.items()}


def _held(connection: Connection, busy: Collection[str], parameters: Mapping[str, Any]) -> list[Candidate]:
    """The head of the queue, and what a crowded one keeps out; nobody else takes of it."""
    head = [Candidate(*row) for row in connection.execute(_HOLD, parameters)]
    if len(head) == parameters["head"] and is_crowded(head, busy):
        level = {**parameters, "level": head[0].priority, "busy": list(busy)}
        head = [*(Candidate(*row) for row in connection.execute(_HOLD_OF_OTHERS, level)), *head]
    return head


def _take_or_settle(
    connection: Connection, one: Candidate, parameters: Mapping[str, Any]
) -> RunRecord | None:
    """The run as it was taken; None for one that was cancelled by request, or whose last attempt went
    silent, and has ended."""
    take = {**parameters, "run": one.id}
    if one.plain:
        return to_run(connection.execute(_TAKE, take).one())
    run = to_run(connection.execute(_GET, {"run": one.id}).one())
    silent = run.state == "running"
    if silent:
        add_attempt(connection, run, "expired", _silence(run))
    if run.cancel_requested:
        connection.execute(_END, {"run": run.id, "state": "cancelled"})
    elif silent and run.attempt >= run.max_attempts:
        connection.execute(_END, {"run": run.id, "state": "failed", "error": run.error or _silence(run)})
    else:
        return to_run(connection.execute(_TAKE, take).one())
    return None


def _silence(run: RunRecord) -> dict[str, Any]:
    last = ", the last" if run.attempt >= run.max_attempts else ""
    message = f"its worker {run.worker} went silent in attempt {run.attempt}{last}"
    return {"type": "LeaseExpired", "message": message}
