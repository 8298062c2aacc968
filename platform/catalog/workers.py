"""Workers: who serves which card, and whether they are still there."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Row, bindparam, null, select, update

from mutoscope.platform.catalog.clock import now
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.tables import workers
from mutoscope.platform.catalog.worker_facts import WorkerFacts
from mutoscope.platform.errors import AmbiguousReference, NoWorker, UnknownReference

STATES = ("starting", "ready", "draining")
"""States of a live worker."""

STOPPED = "stopped"

ALIVE_SECONDS = 15.0
"""A worker whose last heartbeat is older than this is taken for dead, unless the caller says otherwise."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an operator asks of a worker. It does so between two steps, and says the number when it has.

    Attributes:
        serial: counts what was asked of this worker; a later one includes what is still open of those before.
        load, unload: cards to bring into memory or drop from it, each as a card's id (its live weights) or
            one of its versions, ``wan-i2v/transformer@12``.
        drain: finish what runs, take nothing new, and end.
    """

    serial: int
    load: tuple[str, ...] = ()
    unload: tuple[str, ...] = ()
    drain: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As the column keeps it."""
        return {
            "serial": self.serial,
            "load": list(self.load),
            "unload": list(self.unload),
            "drain": self.drain,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Wanted:
        return cls(values["serial"], tuple(values["load"]), tuple(values["unload"]), values["drain"])


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """What a worker says of itself.

    Attributes:
        id: drawn per process.
        cards: card id to {"card_digest", "contract" (numeric contract, a mapping, for runs to be planned
            with), "contract_digest", "also_kept" (digests of further contracts it can keep), "weights"
            (resident component to digest), "resident" (each set in memory by its `weights_key`), "bytes"
            (they take), "running", "finished" (runs, now and since it started), "features" (what its cache
            of node results did), "trouble" (why weights that were asked for are not there)}. A worker that
            is starting may not know its contract yet.
        state: ``starting``, ``ready``, ``draining`` or ``stopped``; ``idle`` if the worker does not say.
        started_at, heartbeat_at: seconds since the epoch; filled by the catalog.
        age: seconds since the last heartbeat, by the database's clock; filled by the catalog.
        memory_bytes: that its runs may take, weights included; None: not known.
        wanted: what an operator asked of it last; done_serial: the last such number it has done. Filled by
            the catalog.
    """

    id: str
    host: str
    pid: int
    device: str
    cards: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    state: str = "idle"
    started_at: float | None = None
    heartbeat_at: float | None = None
    age: float | None = None
    memory_bytes: int | None = None
    wanted: Wanted | None = None
    done_serial: int = 0

    @property
    def resident(self) -> frozenset[str]:
        """The `weights_key` of every set of weights in its memory."""
        return frozenset(key for facts in self.cards.values() for key in facts.get("resident", ()))

    def alive(self, within_seconds: float = ALIVE_SECONDS) -> bool:
        """Not stopped, and heard of recently."""
        return self.state != STOPPED and self.age is not None and self.age <= within_seconds


_COLUMNS = (
    workers.c.id,
    workers.c.host,
    workers.c.pid,
    workers.c.device,
    workers.c.cards,
    workers.c.state,
    workers.c.started_at,
    workers.c.heartbeat_at,
    (now() - workers.c.heartbeat_at).label("age"),
    workers.c.memory_bytes,
    workers.c.wanted,
    workers.c.done_serial,
)
_NOT_DONE = (workers.c.wanted, workers.c.done_serial)
# Built once: every run that is planned asks who serves its card.
_ALIVE = (
    select(*(column if column is not workers.c.cards else null().label("cards") for column in _COLUMNS))
    .where(workers.c.state != STOPPED, workers.c.heartbeat_at >= now() - bindparam("within"))
    .order_by(workers.c.heartbeat_at.desc(), workers.c.id.desc())
)


class Workers:
    """`catalog.workers`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._facts = WorkerFacts()

    def register(self, info: WorkerInfo) -> None:
        """Enter a worker, with its first heartbeat."""
        values = {
            "host": info.host,
            "pid": info.pid,
            "device": info.device,
            "cards": _plain(info.cards),
            "state": info.state,
            "heartbeat_at": now(),
            "memory_bytes": info.memory_bytes,
        }
        statement = self._database.insert(workers).values(id=info.id, started_at=now(), **values)
        with self._database.write() as connection:
            connection.execute(statement.on_conflict_do_update(index_elements=[workers.c.id], set_=values))

    def heartbeat(
        self,
        worker_id: str,
        cards: Mapping[str, Mapping[str, Any]] | None = None,
        state: str | None = None,
        *,
        memory_bytes: int | None = None,
        done_serial: int | None = None,
    ) -> Wanted | None:
        """Say that the worker lives, and what changed about it.

        Args:
            done_serial: the number of what it was asked and has done.

        Returns:
            What is asked of it and not done yet.

        Raises:
            UnknownReference: it never registered.
        """
        given = {
            "cards": None if cards is None else _plain(cards),
            "state": state,
            "memory_bytes": memory_bytes,
            "done_serial": done_serial,
        }
        values = {name: value for name, value in given.items() if value is not None}
        statement = update(workers).where(workers.c.id == worker_id).values(heartbeat_at=now(), **values)
        with self._database.write() as connection:
            row = connection.execute(statement.returning(*_NOT_DONE)).one_or_none()
        if row is None:
            raise UnknownReference(f"no worker has the id {worker_id!r}: register it first")
        return _open(*row)

    def ask(
        self, worker_id: str, *, load: Iterable[str] = (), unload: Iterable[str] = (), drain: bool = False
    ) -> Wanted:
        """Ask something of a worker, which does it at its next heartbeat or soon after. What was asked before
        and is not done yet stays asked; of opposites the later counts.

        Returns:
            All that is asked of it now; it is done when the worker's `done_serial` has reached the serial.

        Raises:
            UnknownReference: there is no such worker.
        """
        load, unload = tuple(load), tuple(unload)
        with self._database.write() as connection:
            this = select(*_NOT_DONE).where(workers.c.id == worker_id).with_for_update()
            row = connection.execute(this).one_or_none()
            if row is None:
                raise UnknownReference(f"no worker has the id {worker_id!r}: `mutoscope pool` lists them")
            before = _open(*row) or Wanted(0)
            wanted = Wanted(
                serial=(row.wanted or {"serial": 0})["serial"] + 1,
                load=_merged(before.load, load, unload),
                unload=_merged(before.unload, unload, load),
                drain=before.drain or drain,
            )
            connection.execute(
                update(workers).where(workers.c.id == worker_id).values(wanted=wanted.to_dict())
            )
        return wanted

    def mark_stopped(self, worker_id: str) -> None:
        """The worker has ended."""
        with self._database.write() as connection:
            connection.execute(update(workers).where(workers.c.id == worker_id).values(state=STOPPED))

    def list(self, limit: int = 100) -> builtins.list[WorkerInfo]:
        """Newest heartbeat first."""
        query = select(*_COLUMNS).order_by(workers.c.heartbeat_at.desc(), workers.c.id.desc()).limit(limit)
        with self._database.glance() as connection:
            return [_to_info(row) for row in connection.execute(query)]

    def alive(
        self, card: str | None = None, within_seconds: float = ALIVE_SECONDS
    ) -> builtins.list[WorkerInfo]:
        """Workers heard of within that time and not stopped; those serving a card, if asked."""
        with self._database.glance() as connection:
            rows = connection.execute(_ALIVE, {"within": within_seconds}).all()
            facts = self._facts.of(connection, ((row.id, row.heartbeat_at, row.age) for row in rows))
        found = [replace(_to_info(row), cards=facts[row.id]) for row in rows if row.id in facts]
        return [worker for worker in found if card is None or card in worker.cards]

    def named(self, part: str | None = None) -> builtins.list[WorkerInfo]:
        """The live worker whose id begins or ends with `part`; every live one without it.

        Raises:
            NoWorker: none lives. UnknownReference, AmbiguousReference: the part is of none, or of several.
        """
        living = self.alive()
        if not living:
            raise NoWorker("no worker lives: `mutoscope up` starts one")
        if part is None:
            return living
        found = [worker for worker in living if worker.id.startswith(part) or worker.id.endswith(part)]
        if not found:
            raise UnknownReference(f"no live worker is named {part!r}: `mutoscope pool status` lists them")
        if len(found) > 1:
            ids = ", ".join(worker.id for worker in found)
            raise AmbiguousReference(f"{part!r} names several workers ({ids}): add digits")
        return found

    def contract(self, card: str, within_seconds: float = ALIVE_SECONDS) -> dict[str, Any] | None:
        """The numeric contract under which the card is served: by a live worker, else by the last one that
        served it.

        None when no worker ever did.
        """
        for candidates in (lambda: self.alive(card, within_seconds), self.list):
            for worker in candidates():
                contract = worker.cards.get(card, {}).get("contract")
                if contract:
                    return dict(contract)
        return None


def _to_info(row: Row[*tuple[Any, ...]]) -> WorkerInfo:
    info = WorkerInfo(*row)
    return replace(info, wanted=Wanted.from_dict(row.wanted)) if row.wanted else info


def _open(wanted: Mapping[str, Any] | None, done_serial: int) -> Wanted | None:
    """What was asked, unless it is done."""
    return Wanted.from_dict(wanted) if wanted and wanted["serial"] > done_serial else None


def _merged(before: Iterable[str], more: Iterable[str], undone: Iterable[str]) -> tuple[str, ...]:
    """Both in order, each once, without what the opposite was asked for."""
    return tuple(name for name in dict.fromkeys((*before, *more)) if name not in set(undone))


def _plain(cards: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {card: dict(facts) for card, facts in cards.items()}
