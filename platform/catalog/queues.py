"""Queues: what an operator says about the runs of one card.

The queue itself is the rows of `runs` in flight. A row here holds it back: paused, no worker takes a run of
the card; limited, at most so many run at a time on all workers together. Runs under way go on either way.
"""

from __future__ import annotations

import builtins
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import select

from mutoscope.platform.catalog.clock import now
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.tables import queues
from mutoscope.platform.errors import InvalidParameter


@dataclass(frozen=True, slots=True)
class QueueRecord:
    """A row of `queues`. `most_running` is None where there is no limit; `note` says why it was paused."""

    card: str
    paused: bool
    most_running: int | None
    note: str | None
    changed_at: float


assert [field.name for field in fields(QueueRecord)] == list(queues.c.keys())

_ALL = select(queues).order_by(queues.c.card)


class Queues:
    """`catalog.queues`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def pause(self, card: str, note: str | None = None) -> QueueRecord:
        """From now on nobody takes a run of the card."""
        return self._say(card, paused=True, note=note)

    def resume(self, card: str) -> QueueRecord:
        """The card's runs are taken again. Workers that wait hear of it at once."""
        return self._say(card, paused=False, note=None)

    def limit(self, card: str, most_running: int | None) -> QueueRecord:
        """At most so many runs of the card at a time; None lifts the limit.

        More that are running already go on.

        Raises:
            InvalidParameter: a negative number.
        """
        if most_running is not None and most_running < 0:
            raise InvalidParameter("most_running", most_running, "use 0 or more, or none to lift the limit")
        return self._say(card, most_running=most_running)

    def list(self) -> builtins.list[QueueRecord]:
        """Every card about which something was said, by name."""
        with self._database.glance() as connection:
            return [QueueRecord(*row) for row in connection.execute(_ALL)]

    def _say(self, card: str, **values: Any) -> QueueRecord:
        statement = self._database.insert(queues).values(card=card, changed_at=now(), **values)
        statement = statement.on_conflict_do_update(
            index_elements=[queues.c.card], set_={"changed_at": now(), **values}
        ).returning(queues)
        with self._database.write(news=True) as connection:
            return QueueRecord(*connection.execute(statement).one())
