"""Which run a worker takes next.

By priority, then age, with two exceptions among runs of equal priority. Both are bounded by `patience`, so
that neither keeps a run waiting for good:

- A worker that would have to load a run's weights leaves it, while it is young, to one that has them in
  memory: loading takes longer than the wait.
- A run whose weights are in this worker's memory goes before older ones that need others, as long as it was
  queued at most `patience` seconds after them. So a mixed queue is worked off in stretches of equal weights
  instead of loading them anew for each run, however long the queue is.

Before both goes fairness: runs of workflow runs that the worker does not serve yet, so that one with a long
queue does not keep the others out.

Left alone altogether are runs for other code or another numeric contract, of a paused card, of a card that
runs as often as its limit allows, and those whose weights the worker's memory cannot hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, and_, bindparam, func, or_, select, tuple_, update

from mutoscope.platform.catalog.attempts import add_attempt
from mutoscope.platform.catalog.clock import now
from mutoscope.platform.catalog.edges import to_run
from mutoscope.platform.catalog.records import RunRecord
from mutoscope.platform.catalog.tables import in_flight, queues, runs

# A worker's own expired run is not up for grabs by itself: its next renewal keeps it, and claiming it again
# would run it twice in one process.
_EXPIRED = and_(
    runs.c.state == "running", runs.c.lease_expires_at < now(), runs.c.worker != bindparam("owner")
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
_LIMITED = select(queues.c.card).where(queues.c.most_running.is_not(None)).exists()
_ORDER = (runs.c.priority.desc(), runs.c.created_at, runs.c.id)
"""The order of the index of the queue, which serves it without sorting."""

ANY = select(runs.c.id, _LIMITED.label("limited")).where(_CLAIMABLE).order_by(*_ORDER).limit(1)
"""Whether there is anything to claim, and whether any card has a limit: one read, no lock."""

_NEXT = (
    select(runs)
    # A run that changes hands runs already.
    .where(_CLAIMABLE, or_(runs.c.state == "running", runs.c.card.not_in(bindparam("full", expanding=True))))
    .order_by(*_ORDER)
    .limit(1)
    # Postgres: claimants pass each other. SQLite has one writer at a time anyway.
    .with_for_update(skip_locked=True)
)
_OF_LEVEL = _NEXT.where(runs.c.priority == bindparam("level"))
_OF_OTHERS = or_(
    runs.c.workflow_run_id.is_(None), runs.c.workflow_run_id.not_in(bindparam("busy", expanding=True))
)
_AT_HOME = and_(
    or_(runs.c.weights_key.is_(None), runs.c.weights_key.in_(bindparam("resident", expanding=True))),
    runs.c.created_at <= bindparam("until"),
)
_NEXT_OF_OTHERS = _OF_LEVEL.where(_OF_OTHERS)
_NEXT_AT_HOME = _OF_LEVEL.where(_AT_HOME)
_NEXT_OF_OTHERS_AT_HOME = _NEXT_OF_OTHERS.where(_AT_HOME)

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

_UNLIMITED = 2**62


@dataclass(frozen=True, slots=True)
class Claimant:
    """What decides which runs a worker may take.

    Attributes:
        served: pairs of card and numeric contract. coded: pairs of card and digest of its code; uncoded: the
            cards of which any code will do.
        resident: `weights_key` of each set of weights in its memory; elsewhere: of those in the memory of
            other live workers alone.
        memory_bytes: largest weights it can hold; None: not known.
        patience: seconds; see above.
    """

    worker: str
    served: Sequence[tuple[str, str]]
    coded: Sequence[tuple[str, str]]
    uncoded: Sequence[str]
    resident: frozenset[str] = frozenset()
    elsewhere: frozenset[str] = frozenset()
    memory_bytes: int | None = None
    patience: float = 0.0
    parameters: Mapping[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        parameters = {
            "owner": self.worker,
            "served": self.served,
            "coded": self.coded,
            "uncoded": self.uncoded,
            "resident": sorted(self.resident),
            "elsewhere": sorted(self.elsewhere - self.resident),
            "memory": _UNLIMITED if self.memory_bytes is None else self.memory_bytes,
            "patience": self.patience,
        }
        object.__setattr__(self, "parameters", parameters)

    def has_at_home(self, run: RunRecord) -> bool:
        """Whether the run can start without loading weights."""
        return run.weights_key is None or run.weights_key in self.resident


def take_next(
    connection: Connection,
    claimant: Claimant,
    seconds: float,
    limit: int,
    busy: set[str],
    *,
    limited: bool,
) -> list[RunRecord]:
    """Take the next `limit` runs. Those that must not start again are settled on the way and do not count.

    Args:
        seconds: of the leases.
        busy: workflow runs that the worker serves; grows by those of the runs taken.
        limited: whether some card has a limit.
    """
    places = _places(connection) if limited else {}
    taken: list[RunRecord] = []
    while len(taken) < limit and (run := _due(connection, claimant, busy, places)) is not None:
        expired = run.state == "running"
        if expired:
            add_attempt(connection, run, "expired", _silence(run))
        ended = _settled(connection, run)
        if run.card in places:
            places[run.card] -= int(not ended) - int(expired)
        if not ended:
            taken.append(_take(connection, run.id, claimant.worker, seconds))
            busy |= {run.workflow_run_id} if run.workflow_run_id else set()
    return taken


def _places(connection: Connection) -> dict[str, int]:
    """How many more runs of each limited card may start. Until the transaction ends nobody else starts
    any."""
    limits = {row.card: row.most_running for row in connection.execute(_LIMITS)}
    running = {row[0]: row[1] for row in connection.execute(_RUNNING, {"cards": list(limits)})}
    return {card: most - running.get(card, 0) for card, most in limits.items()}


def _due(
    connection: Connection, claimant: Claimant, busy: set[str], places: Mapping[str, int]
) -> RunRecord | None:
    """The run to take next; None when there is none."""

    def ask(statement: Any, **more: Any) -> RunRecord | None:
        row = connection.execute(statement, {**claimant.parameters, "full": full, **more}).one_or_none()
        return None if row is None else to_run(row)

    full = [card for card, free in places.items() if free <= 0]
    first = ask(_NEXT)
    if first is None:
        return None
    level, oldest, at_home = first.priority, first, _NEXT_AT_HOME
    if first.workflow_run_id in busy:
        other = ask(_NEXT_OF_OTHERS, level=level, busy=list(busy))
        if other is not None:
            oldest, at_home = other, _NEXT_OF_OTHERS_AT_HOME
    if claimant.has_at_home(oldest):
        return oldest
    until = oldest.created_at + claimant.patience
    return ask(at_home, level=level, busy=list(busy), until=until) or oldest


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
