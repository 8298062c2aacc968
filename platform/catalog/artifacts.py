"""Artifact rows: what the bytes are. Rows stay when bytes go (tombstones)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, Row, Select, and_, exists, select

from mutoscope.platform.catalog.clock import now
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.keys import SHOWN_CANDIDATES, prefix_range
from mutoscope.platform.catalog.tables import artifacts, edges, members, runs, workflow_runs
from mutoscope.platform.errors import AmbiguousReference, UnknownReference
from mutoscope.platform.refs import ArtifactRef, parse_reference

REF_COLUMNS = (
    artifacts.c.digest,
    artifacts.c.kind,
    artifacts.c.media_type,
    artifacts.c.size,
    artifacts.c.meta,
)


def to_ref(row: Row[*tuple[Any, ...]]) -> ArtifactRef:
    """The reference of a row that holds `REF_COLUMNS`."""
    return ArtifactRef(row.digest, row.kind, row.media_type, row.size, row.meta)


def record_all(
    database: Database, connection: Connection, refs: Iterable[ArtifactRef], *, stored: bool = True
) -> None:
    """Insert rows that are missing and revive tombstones, which count as made now. A present row stays as it
    is: what a digest is was settled when it was first recorded.

    Args:
        stored: the caller has stored the bytes. Not so for what is merely referred to: then a tombstone
            whose bytes were removed for good stays one.
    """
    values = {
        ref.digest: {
            "digest": ref.digest,
            "kind": ref.kind,
            "media_type": ref.media_type,
            "size": ref.size,
            "meta": dict(ref.meta),
        }
        for ref in refs
    }
    if not values:
        return
    statement = database.insert(artifacts).values(state="present", created_at=now())
    revived = artifacts.c.state != "present"
    statement = statement.on_conflict_do_update(
        index_elements=[artifacts.c.digest],
        set_={"state": "present", "created_at": now()},
        where=revived if stored else and_(revived, artifacts.c.purged_at.is_(None)),
    )
    # In one order everywhere: two writers that insert the same rows wait for each other, never in a circle.
    connection.execute(statement, [values[digest] for digest in sorted(values)])


class Artifacts:
    """`catalog.artifacts`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, ref: ArtifactRef) -> None:
        """Insert the row, unless it is there. The bytes must be in the store already."""
        with self._database.write() as connection:
            record_all(self._database, connection, [ref])

    def record_many(self, refs: Iterable[ArtifactRef]) -> None:
        """As `record`, for several in one transaction; tombstones among them are present again."""
        with self._database.write() as connection:
            record_all(self._database, connection, refs)

    def get(self, digest: str) -> ArtifactRef | None:
        """The reference with that full digest."""
        with self._database.glance() as connection:
            row = connection.execute(select(*REF_COLUMNS).where(artifacts.c.digest == digest)).one_or_none()
        return to_ref(row) if row else None

    def state(self, digest: str) -> str | None:
        """``present``, ``tombstone`` (its bytes were collected) or None."""
        with self._database.glance() as connection:
            return connection.execute(
                select(artifacts.c.state).where(artifacts.c.digest == digest)
            ).scalar_one_or_none()

    def resolve(self, reference: str) -> ArtifactRef:
        """The one artifact that ``video:3fa9`` or ``3fa9`` names.

        Raises:
            UnknownReference: nothing matches, or the text is no reference.
            AmbiguousReference: several match; the message lists them.
        """
        kind, prefix = parse_reference(reference)
        query = (
            select(*REF_COLUMNS).where(prefix_range(artifacts.c.digest, prefix)).order_by(artifacts.c.digest)
        )
        if kind is not None:
            query = query.where(artifacts.c.kind == kind)
        with self._database.glance() as connection:
            rows = connection.execute(query.limit(SHOWN_CANDIDATES + 1)).all()
        if not rows:
            raise UnknownReference(f"no artifact is named {reference!r}: `mutoscope ls` lists what there is")
        if len(rows) > 1:
            shown = ", ".join(str(to_ref(row)) for row in rows[:SHOWN_CANDIDATES])
            more = ", ..." if len(rows) > SHOWN_CANDIDATES else ""
            raise AmbiguousReference(f"{reference!r} names several artifacts ({shown}{more}): add digits")
        return to_ref(rows[0])

    def list(
        self, kind: str | None = None, limit: int = 50, workflow: str | None = None
    ) -> list[ArtifactRef]:
        """Newest first; of one kind, or generated within runs of one workflow, if asked.

        Without a kind, members of others are left out: a checkpoint's tensors would hide everything else.
        """
        query = select(*REF_COLUMNS).order_by(artifacts.c.created_at.desc(), artifacts.c.digest).limit(limit)
        if kind is not None:
            query = query.where(artifacts.c.kind == kind)
        else:
            query = query.where(~exists().where(members.c.artifact_digest == artifacts.c.digest))
        if workflow is not None:
            query = query.where(artifacts.c.digest.in_(_generated_within(workflow)))
        with self._database.glance() as connection:
            return [to_ref(row) for row in connection.execute(query)]


def _generated_within(workflow: str) -> Select[Any]:
    return (
        select(edges.c.artifact_digest)
        .join(runs, runs.c.id == edges.c.run_id)
        .join(workflow_runs, workflow_runs.c.id == runs.c.workflow_run_id)
        .where(edges.c.direction == "generated", workflow_runs.c.workflow == workflow)
    )
