"""Audit: what a check of the catalog asks of it, and the few rows a repair sets right.

Rows are read in pages, each a short transaction of its own: a check of a large catalog takes hours, and must
neither hold a snapshot open for that long nor keep a writer waiting. What a page said may have changed by the
time it is compared with the bytes, so whoever finds a fault looks again before calling it one (`standing`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, bindparam, delete, func, insert, select, update

from mutoscope.platform.catalog.clock import now
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.incidents import add_incident
from mutoscope.platform.catalog.keys import KEYS, by_keys
from mutoscope.platform.catalog.tables import artifacts, edges, members

PAGE = 2_000


@dataclass(frozen=True, slots=True)
class Holding:
    """What the catalog says of an artifact's bytes. `lost`: it is a tombstone because a check found no bytes
    of it, not because it was collected."""

    digest: str
    kind: str
    size: int
    present: bool
    lost: bool

    def __str__(self) -> str:
        return f"{self.kind}:{self.digest[:12]}"


_COLUMNS = (
    artifacts.c.digest,
    artifacts.c.kind,
    artifacts.c.size,
    artifacts.c.state,
    artifacts.c.collected_at,
    artifacts.c.purged_at,
)
_PAGE = (
    select(*_COLUMNS)
    .where(artifacts.c.digest > bindparam("after"))
    .order_by(artifacts.c.digest)
    .limit(bindparam("most"))
)
_STANDING = select(*_COLUMNS).where(artifacts.c.digest.in_(KEYS))
_CONTAINERS = (
    select(artifacts.c.digest)
    .where(
        artifacts.c.kind == "weights", artifacts.c.state == "present", artifacts.c.digest > bindparam("after")
    )
    .order_by(artifacts.c.digest)
    .limit(bindparam("most"))
)


class Audit:
    """`catalog.audit`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # Artifacts

    def artifacts(self) -> Iterator[Holding]:
        """Every artifact, sorted by digest."""
        for row in self._pages(_PAGE):
            yield _to_row(row)

    def count(self) -> int:
        """How many artifacts there are rows for."""
        with self._database.glance() as connection:
            return int(connection.execute(select(func.count()).select_from(artifacts)).scalar_one())

    def standing(self, digests: Iterable[str]) -> dict[str, Holding]:
        """What the catalog says of those artifacts now; those it does not know are left out."""
        with self._database.read() as connection:
            return {row.digest: _to_row(row) for row in by_keys(connection, _STANDING, set(digests))}

    def mark_lost(self, digest: str, kind: str, details: Mapping[str, Any]) -> bool:
        """Make a present artifact a tombstone whose bytes are gone, though never collected, and record the
        incident; False if it is not present. The caller has looked for the bytes, and looks once more
        afterwards: a writer may have brought them meanwhile.

        Args:
            kind: of the incident: ``damage`` or ``loss``.
        """
        with self._database.write() as connection:
            marked = connection.execute(
                update(artifacts)
                .where(artifacts.c.digest == digest, artifacts.c.state == "present")
                .values(state="tombstone", collected_at=None, purged_at=now())
            ).rowcount
            if marked:
                made_by = (
                    select(edges.c.run_id)
                    .where(edges.c.artifact_digest == digest, edges.c.direction == "generated")
                    .order_by(edges.c.run_id)
                    .limit(1)
                )
                run_id = connection.execute(made_by).scalar_one_or_none()
                add_incident(connection, kind, run_id, {"digest": digest, **details})
        return bool(marked)

    def set_size(self, digest: str, size: int) -> None:
        """Correct a row to what the sound bytes say."""
        with self._database.write() as connection:
            connection.execute(update(artifacts).where(artifacts.c.digest == digest).values(size=size))

    # Containers

    def containers(self) -> Iterator[str]:
        """Digests of present artifacts that may be containers, sorted."""
        return (row.digest for row in self._pages(_CONTAINERS))

    def members(self, container: str) -> dict[str, str]:
        """Path to digest of what the container is recorded to need."""
        query = select(members.c.path, members.c.artifact_digest).where(members.c.container == container)
        with self._database.glance() as connection:
            return {row.path: row.artifact_digest for row in connection.execute(query)}

    def containers_of(self, digest: str, limit: int = 5) -> list[str]:
        """Some of the containers that need the artifact."""
        query = (
            select(members.c.container)
            .where(members.c.artifact_digest == digest)
            .distinct()
            .order_by(members.c.container)
            .limit(limit)
        )
        with self._database.glance() as connection:
            return list(connection.execute(query).scalars())

    def set_members(self, container: str, found: Mapping[str, str]) -> None:
        """Record what the container needs, in place of what is recorded. The artifacts must have rows."""
        rows = [
            {"container": container, "path": path, "artifact_digest": digest}
            for path, digest in found.items()
        ]
        with self._database.write() as connection:
            connection.execute(delete(members).where(members.c.container == container))
            if rows:
                connection.execute(insert(members), rows)

    def _pages(self, query: Select[*tuple[Any, ...]]) -> Iterator[Any]:
        after = ""
        while True:
            with self._database.glance() as connection:
                rows = connection.execute(query, {"after": after, "most": PAGE}).all()
            yield from rows
            if len(rows) < PAGE:
                return
            after = rows[-1].digest


def _to_row(row: Any) -> Holding:
    present = row.state == "present"
    lost = not present and row.collected_at is None and row.purged_at is not None
    return Holding(row.digest, row.kind, row.size, present, lost)
