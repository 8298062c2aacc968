"""What live workers said of their cards, read again only when they have said something since.

A worker's facts are some tens of kilobytes, and every run that is planned asks for one of them. Whatever
changes them says so in `heartbeat_at`, so what was read for one heartbeat holds until the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, select

from mutoscope.platform.catalog.keys import KEYS, by_keys
from mutoscope.platform.catalog.tables import workers

SETTLED_SECONDS = 0.05
"""Facts of a younger heartbeat are not kept: another may be written in the same tick of the clock."""

Facts = Mapping[str, Mapping[str, Any]]

_READ = select(workers.c.id, workers.c.heartbeat_at, workers.c.cards).where(workers.c.id.in_(KEYS))


class WorkerFacts:
    """The facts that one process has read last, by worker."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[float, Facts]] = {}

    def of(self, connection: Connection, heartbeats: Iterable[tuple[str, float, float]]) -> dict[str, Facts]:
        """The facts of each worker, given as id, time of its heartbeat and seconds since then."""
        told, settled, unread = dict[str, Facts](), dict[str, float](), set[str]()
        for worker, heartbeat, age in heartbeats:
            kept = self._kept.get(worker)
            if kept is not None and kept[0] == heartbeat:
                told[worker] = kept[1]
                continue
            unread.add(worker)
            if age > SETTLED_SECONDS:
                settled[worker] = heartbeat
        if unread:
            for row in by_keys(connection, _READ, unread):
                told[row.id] = row.cards
                if settled.get(row.id) == row.heartbeat_at:
                    self._kept[row.id] = (row.heartbeat_at, row.cards)
        for gone in self._kept.keys() - told.keys():
            self._kept.pop(gone, None)
        return told
