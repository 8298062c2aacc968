"""The pool as a whole: what waits, what runs, and how fast it goes, per card.

Everything here is counted from the rows that the work itself goes by, so it cannot drift from the truth: the
queue from the runs in flight, rates from the runs that ended lately.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import bindparam, case, func, select

from mutoscope.platform.catalog.clock import now
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.tables import in_flight, runs

RATE_SECONDS = 60.0
"""The stretch of time over which rates are taken, unless the caller says otherwise."""


@dataclass(frozen=True, slots=True)
class Depth:
    """One card's runs in flight. `oldest_seconds` is how long the oldest queued one has waited; None when
    none is queued."""

    queued: int
    running: int
    oldest_seconds: float | None


@dataclass(frozen=True, slots=True)
class Rate:
    """One card's runs that ended lately.

    Attributes:
        per_minute: runs that succeeded.
        failed: runs that failed, in that time.
        seconds: mean time one took on its worker; None when none succeeded.
    """

    per_minute: float
    failed: int
    seconds: float | None


def _count(state: str) -> func.count:
    return func.count(case((runs.c.state == state, 1)))


_DEPTHS = (
    select(
        runs.c.card,
        _count("queued"),
        _count("running"),
        now() - func.min(case((runs.c.state == "queued", runs.c.created_at))),
    )
    .where(in_flight, runs.c.card.is_not(None))
    .group_by(runs.c.card)
    .order_by(runs.c.card)
)
_RATES = (
    select(
        runs.c.card,
        _count("succeeded"),
        _count("failed"),
        func.avg(case((runs.c.state == "succeeded", runs.c.finished_at - runs.c.started_at))),
    )
    # Work recorded when it was done (an import, a train step) was never in the queue.
    .where(runs.c.finished_at >= now() - bindparam("seconds"), runs.c.contract.is_not(None))
    .group_by(runs.c.card)
    .order_by(runs.c.card)
)


class Pool:
    """`catalog.pool`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def depths(self) -> dict[str, Depth]:
        """Cards that have runs in flight, by name."""
        with self._database.glance() as connection:
            return {row[0]: Depth(*row[1:]) for row in connection.execute(_DEPTHS)}

    def rates(self, seconds: float = RATE_SECONDS) -> dict[str, Rate]:
        """Cards of which runs ended within the last `seconds`, by name."""
        with self._database.glance() as connection:
            rows = connection.execute(_RATES, {"seconds": seconds}).all()
        return {
            card: Rate(succeeded * 60 / seconds, failed, None if mean is None else float(mean))
            for card, succeeded, failed, mean in rows
        }
