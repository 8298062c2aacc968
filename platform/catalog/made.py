"""What was made with an artifact, page by page: the pictures of a weight version, newest first.

Pages are cut by key, not by counting: the millionth page costs what the first does, and a picture made
between two pages neither repeats nor hides another.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    exists,
    literal,
    or_,
    select,
    tuple_,
)

from mutoscope.platform.catalog.artifacts import REF_COLUMNS, to_ref
from mutoscope.platform.catalog.tables import artifacts, edges, runs
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.refs import ArtifactRef

_CURSOR = re.compile(r"([0-9a-f-]{36})/(\d+)/(.+)")


@dataclass(frozen=True, slots=True)
class Making:
    """An artifact and the newest run that made it with what was asked about.

    Attributes:
        role: the run's output slot. ordinal: position within a slot of several.
        present: False where the bytes were collected.
        created_at: of the run, in seconds since the epoch.
    """

    ref: ArtifactRef
    present: bool
    run_id: str
    card: str | None
    role: str
    ordinal: int
    created_at: float


@dataclass(frozen=True, slots=True)
class MadePage:
    """A page of makings. `next` is the cursor of the page after it; None on the last."""

    makings: tuple[Making, ...]
    next: str | None


def read(
    connection: Connection, digest: str, kinds: tuple[str, ...], limit: int, after: str | None
) -> MadePage:
    """The page after the cursor. Raises InvalidParameter when it is none."""
    query = _MADE
    if kinds:
        query = query.where(artifacts.c.kind.in_(kinds))
    if after is not None:
        query = query.where(_beyond(after))
    rows = connection.execute(query.limit(limit + 1), {"digest": digest}).all()
    makings = tuple(
        Making(to_ref(row), row.state == "present", row.run_id, row.card, row.role, row.ordinal, row.run_at)
        for row in rows[:limit]
    )
    last = makings[-1] if len(rows) > limit else None
    return MadePage(makings, f"{last.run_id}/{last.ordinal}/{last.role}" if last else None)


def _beyond(cursor: str) -> ColumnElement[bool]:
    """What comes after the making that a cursor names."""
    parts = _CURSOR.fullmatch(cursor)
    if parts is None:
        raise InvalidParameter("after", cursor, "use what the page before ended with")
    run_id, ordinal, role = parts.groups()
    later = tuple_(_MAKING.c.role, _MAKING.c.ordinal) > tuple_(literal(role), literal(int(ordinal)))
    # The first condition alone says where in the index to begin; the second takes off what was shown.
    return and_(_USE.c.run_id <= run_id, or_(_USE.c.run_id < run_id, later))


_USE, _MAKING = edges.alias("use"), edges.alias("making")


def _made() -> Select[Any]:
    """Outputs of the runs that used `:digest`, newest run first.

    Two conditions keep an artifact to one line: a run counts once although it used the artifact in two roles,
    and bytes that were made again count where they were made last.
    """
    other_use, again, used_again = (edges.alias(name) for name in ("other_use", "again", "used_again"))
    wanted = bindparam("digest")
    once = ~exists().where(
        other_use.c.artifact_digest == wanted,
        other_use.c.direction == "used",
        other_use.c.run_id == _USE.c.run_id,
        tuple_(other_use.c.role, other_use.c.ordinal) < tuple_(_USE.c.role, _USE.c.ordinal),
    )
    later = or_(
        again.c.run_id > _MAKING.c.run_id,
        and_(
            again.c.run_id == _MAKING.c.run_id,
            tuple_(again.c.role, again.c.ordinal) < tuple_(_MAKING.c.role, _MAKING.c.ordinal),
        ),
    )
    last = ~exists().where(
        again.c.artifact_digest == _MAKING.c.artifact_digest,
        again.c.direction == "generated",
        later,
        used_again.c.run_id == again.c.run_id,
        used_again.c.artifact_digest == wanted,
        used_again.c.direction == "used",
    )
    return (
        select(
            *REF_COLUMNS,
            artifacts.c.state,
            _MAKING.c.run_id,
            runs.c.card,
            _MAKING.c.role,
            _MAKING.c.ordinal,
            runs.c.created_at.label("run_at"),
        )
        .select_from(_USE)
        .join(_MAKING, and_(_MAKING.c.run_id == _USE.c.run_id, _MAKING.c.direction == "generated"))
        .join(runs, runs.c.id == _USE.c.run_id)
        .join(artifacts, artifacts.c.digest == _MAKING.c.artifact_digest)
        .where(_USE.c.artifact_digest == wanted, _USE.c.direction == "used", once, last)
        .order_by(_USE.c.run_id.desc(), _MAKING.c.role, _MAKING.c.ordinal)
    )


_MADE = _made()
