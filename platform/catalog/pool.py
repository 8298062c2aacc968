"""The pool as a whole: what waits, what runs, and how fast it goes, per card.

Everything here is counted from the rows that the work itself goes by, so it cannot drift from the truth: the
queue from the runs in flight, rates from the runs that ended lately.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace

from sqlalchemy import ColumnElement, bindparam, case, func, select

from mutoscope.platform.catalog.clock import now
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.incidents import Incidents
from mutoscope.platform.catalog.keys import KEYS, by_keys
from mutoscope.platform.catalog.pool_report import (
    NO_RATE,
    Depth,
    PoolReport,
    Rate,
    card_lines,
    resident_digests,
    worker_line,
)
from mutoscope.platform.catalog.queues import Queues
from mutoscope.platform.catalog.scaling import TARGET_SECONDS
from mutoscope.platform.catalog.tables import in_flight, runs, weight_versions
from mutoscope.platform.catalog.weights import VERSION_COLUMNS, WeightVersion, to_version
from mutoscope.platform.catalog.workers import Workers

RATE_SECONDS = 60.0
"""The stretch of time over which rates are taken, unless the caller says otherwise."""

_LATEST = 200
"""Ended runs that are looked at to learn how long slow cards' runs take."""
_LONG_SECONDS = 6 * 3600.0
"""How far back they may lie."""


def _count(state: str) -> ColumnElement[int]:
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


# Long runs end too seldom for a minute to tell how long they take. The index of ends is read backwards.
_ENDED = (
    select(runs.c.card, (runs.c.finished_at - runs.c.started_at).label("seconds"))
    .where(
        runs.c.finished_at >= now() - bindparam("seconds"),
        runs.c.state == "succeeded",
        runs.c.contract.is_not(None),
        runs.c.card.in_(bindparam("cards", expanding=True)),
    )
    .order_by(runs.c.finished_at.desc())
    .limit(_LATEST)
    .subquery()
)
_DURATIONS = select(_ENDED.c.card, func.avg(_ENDED.c.seconds)).group_by(_ENDED.c.card)
_NAMES = (
    select(*VERSION_COLUMNS)
    .where(weight_versions.c.artifact_digest.in_(KEYS))
    .order_by(weight_versions.c.created_at, weight_versions.c.id)
)


class Pool:
    """`catalog.pool`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._workers, self._queues = Workers(database), Queues(database)
        self._incidents = Incidents(database)

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

    def report(self, target_seconds: float = TARGET_SECONDS) -> PoolReport:
        """Every card and every live worker as they are now.

        Args:
            target_seconds: in which the work that waits should be done; decides how many workers are wanted.
        """
        workers = sorted(self._workers.alive(), key=lambda worker: (worker.host, worker.pid, worker.id))
        names = self._names(resident_digests(workers))
        depths, rates = self.depths(), self.rates()
        for card, seconds in self._durations([c for c in depths if c not in rates or not rates[c].seconds]):
            rates[card] = replace(rates.get(card, NO_RATE), seconds=seconds)
        return PoolReport(
            cards=card_lines(depths, rates, self._queues.list(), workers, target_seconds),
            workers=tuple(worker_line(worker, names) for worker in workers),
            incidents=self._incidents.counts(),
        )

    def _durations(self, cards: Sequence[str]) -> list[tuple[str, float]]:
        """Mean seconds of the cards' runs that ended last, as far as that is not too long ago."""
        if not cards:
            return []
        parameters = {"cards": cards, "seconds": _LONG_SECONDS}
        with self._database.glance() as connection:
            return [(card, float(mean)) for card, mean in connection.execute(_DURATIONS, parameters)]

    def _names(self, digests: Collection[str]) -> dict[str, list[WeightVersion]]:
        """Every version that the bytes are known as, oldest first."""
        names = defaultdict(list)
        with self._database.glance() as connection:
            for row in by_keys(connection, _NAMES, digests):
                version = to_version(row)
                names[version.digest].append(version)
        return names
