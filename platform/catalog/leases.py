"""Leases: promises to the collector, kept by the database's clock.

A reader's lease says "these bytes are in use": nothing it names is collected until it ends. A writer's says
"bytes are being stored that have no row yet": nothing that was in the trash while it ran is removed for good
until it ends. Runs of the queue are leases by themselves; these are for whoever works outside it.

A holder renews while it lives. One that dies renews no more, and its lease runs out by itself.
"""

from __future__ import annotations

import builtins
import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import delete, insert, select, update

from mutoscope.platform.batches import batched
from mutoscope.platform.catalog.clock import now
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.keys import CHUNK
from mutoscope.platform.catalog.tables import in_force, leases
from mutoscope.platform.errors import InvalidParameter, LeaseLost, MutoscopeError
from mutoscope.platform.ids import new_id

LEASE_SECONDS = 60.0
"""How long a lease outlives its holder. It is renewed three times as often."""

_HOLDER_CHARACTERS = 255
"""What the column holds; a name made of a path may be longer."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """A row of `leases`. Times are seconds since the epoch by the database's clock; `digest` is None for a
    writer's."""

    id: str
    holder: str
    kind: Literal["reader", "writer"]
    digest: str | None
    started_at: float
    expires_at: float


class Leases:
    """`catalog.leases`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @contextmanager
    def reading(self, digests: Iterable[str], holder: str, seconds: float = LEASE_SECONDS) -> Iterator[None]:
        """Keep those artifacts from being collected while the block runs.

        Args:
            holder: who reads, as a person would say it; shown as the reason why they are kept.
            seconds: how long the lease outlives a holder that dies.

        Raises:
            LeaseLost: at the end, when the lease ran out meanwhile: this process stood still for too long,
                and what it read may have been collected.
        """
        wanted = builtins.list(dict.fromkeys(digests))
        yield from self._held("reader", wanted, holder, seconds)

    @contextmanager
    def writing(self, holder: str, seconds: float = LEASE_SECONDS) -> Iterator[None]:
        """Announce that bytes are stored, and recorded, within the block.

        Raises:
            LeaseLost: at the end, when the lease ran out meanwhile. What was recorded may lack its bytes: do
                it again, which repairs it.
        """
        yield from self._held("writer", [None], holder, seconds)

    def list(self) -> builtins.list[LeaseRecord]:
        """Leases in force, oldest first."""
        query = select(leases).where(in_force).order_by(leases.c.started_at, leases.c.id)
        with self._database.glance() as connection:
            return [LeaseRecord(*row) for row in connection.execute(query)]

    def take(
        self, kind: Literal["reader", "writer"], digests: Sequence[str | None], holder: str, seconds: float
    ) -> builtins.list[str]:
        """Enter leases and return their ids; for holders that renew by themselves."""
        if seconds <= 0:
            raise InvalidParameter("seconds", seconds, "use a positive number of seconds")
        ids = [new_id() for _ in digests]
        rows = [
            {"id": id_, "holder": holder[:_HOLDER_CHARACTERS], "kind": kind, "artifact_digest": digest}
            for id_, digest in zip(ids, digests, strict=True)
        ]
        if rows:
            with self._database.write() as connection:
                connection.execute(
                    insert(leases).values(started_at=now(), expires_at=now() + float(seconds)), rows
                )
        return ids

    def renew(self, ids: Sequence[str], seconds: float) -> None:
        """Extend leases still in force. Raises LeaseLost when one has run out: what it kept may be gone."""
        with self._database.write() as connection:
            renewed = sum(
                connection.execute(
                    update(leases)
                    .where(leases.c.id.in_(chunk), in_force)
                    .values(expires_at=now() + float(seconds))
                ).rowcount
                for chunk in batched(ids, CHUNK)
            )
        if renewed < len(ids):
            raise LeaseLost(
                f"{len(ids) - renewed} of {len(ids)} leases ran out before they were renewed: "
                "repeat what they were for"
            )

    def release(self, ids: Sequence[str]) -> None:
        """End leases, and forget those of others that ran out a day ago."""
        with self._database.write() as connection:
            for chunk in batched(ids, CHUNK):
                connection.execute(delete(leases).where(leases.c.id.in_(chunk)))
            connection.execute(delete(leases).where(leases.c.expires_at < now() - 86_400.0))

    def _held(
        self, kind: Literal["reader", "writer"], digests: Sequence[str | None], holder: str, seconds: float
    ) -> Iterator[None]:
        ids = self.take(kind, digests, holder, seconds)
        renewal = Renewal(lambda: self.renew(ids, seconds), seconds / 3)
        try:
            with renewal:
                yield
            # After the work, whatever the thread has seen: only now can the holder say that it was covered.
            self.renew(ids, seconds)
        finally:
            self.release(ids)


class Renewal:
    """A thread that renews something every `interval` seconds while its block runs.

    A renewal that fails because the database is away is tried again at the next turn; whether the lease was
    kept throughout is for the holder to ask.
    """

    def __init__(self, renew: Any, interval: float) -> None:
        self._renew, self._interval = renew, interval
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease-renewal", daemon=True)

    def __enter__(self) -> Renewal:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(self._interval):
            try:
                self._renew()
            except LeaseLost:
                return
            except MutoscopeError as error:
                log.warning("lease not renewed, trying again in %.0f s: %s", self._interval, error)
