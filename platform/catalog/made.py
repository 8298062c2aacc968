"""What was made with an artifact, page by page: the pictures of a weight version, newest first.

Pages are cut by key, not by counting: the millionth page costs what the first does, and a picture made
between two pages neither repeats nor hides another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    and_,
    bindparam,
    literal,
    or_,
    select,
    tuple_,
)

from mutoscope.platform.catalog.artifacts import REF_COLUMNS, to_ref
from mutoscope.platform.catalog.keys import KEYS, by_keys
from mutoscope.platform.catalog.tables import artifacts, edges, runs
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.refs import ArtifactRef

_CURSOR = re.compile(r"([0-9a-f-]{36})/(\d{1,9})/(.+)")


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
    query = _MADE.where(artifacts.c.kind.in_(kinds)) if kinds else _MADE
    beyond = _parse(after) if after is not None else None
    makings: list[Making] = []
    while len(makings) <= limit:
        asked = limit + 1
        page = query.where(_beyond(*beyond)) if beyond else query
        rows = connection.execute(page.limit(asked), {"digest": digest}).all()
        makings += _newest(connection, digest, rows)
        if len(rows) < asked:
            break
        beyond = _key(rows[-1])
    shown = tuple(makings[:limit])
    last = shown[-1] if len(makings) > limit else None
    return MadePage(shown, f"{last.run_id}/{last.ordinal}/{last.role}" if last else None)


_Key = tuple[str, str, int]
"""Where a making stands: run (descending), role, ordinal."""


def _parse(cursor: str) -> _Key:
    parts = _CURSOR.fullmatch(cursor)
    if parts is None:
        raise InvalidParameter("after", cursor, "use what the page before ended with")
    run_id, ordinal, role = parts.groups()
    return run_id, role, int(ordinal)


def _key(row: Row[*tuple[Any, ...]]) -> _Key:
    return row.run_id, row.role, row.ordinal


def _beyond(run_id: str, role: str, ordinal: int) -> ColumnElement[bool]:
    later = tuple_(_MAKING.c.role, _MAKING.c.ordinal) > tuple_(literal(role), literal(ordinal))
    # The first condition alone says where in the index to begin; the second takes off what was shown.
    return and_(_USE.c.run_id <= run_id, or_(_USE.c.run_id < run_id, later))


def _newest(connection: Connection, digest: str, rows: Sequence[Row[*tuple[Any, ...]]]) -> Iterator[Making]:
    """The makings among rows, without those whose bytes such a run made again later, so that each artifact
    has one line; and without the repetition of a run that used the artifact in two roles.

    Asked about the page's own artifacts, by key, rather than as conditions of the query: with those a planner
    that knows no numbers starts from all that was ever made with the artifact.
    """
    made = list(by_keys(connection, _AGAIN, {row.digest for row in rows}))
    others = {one.run_id for one in made} - {row.run_id for row in rows}
    users = {row.run_id for row in rows} | {
        one.run_id for one in by_keys(connection, _USERS, others, {"digest": digest})
    }
    first: dict[str, _Key] = {}
    for one in made:
        if one.run_id in users:
            place = first.setdefault(one.artifact_digest, _key(one))
            first[one.artifact_digest] = min(place, _key(one), key=_order)
    seen: set[_Key] = set()
    for row in rows:
        if first[row.digest] == _key(row) and _key(row) not in seen:
            seen.add(_key(row))
            yield Making(
                to_ref(row), row.state == "present", row.run_id, row.card, row.role, row.ordinal, row.run_at
            )


def _order(key: _Key) -> tuple[int, str, int]:
    # Ids of runs are hexadecimal numbers: negated, the newest is first.
    return -int(key[0].replace("-", ""), 16), key[1], key[2]


_USE, _MAKING = edges.alias("use"), edges.alias("making")
_MADE = (
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
    .where(_USE.c.artifact_digest == bindparam("digest"), _USE.c.direction == "used")
    .order_by(_USE.c.run_id.desc(), _MAKING.c.role, _MAKING.c.ordinal)
)
_AGAIN = select(edges.c.artifact_digest, edges.c.run_id, edges.c.role, edges.c.ordinal).where(
    edges.c.artifact_digest.in_(KEYS), edges.c.direction == "generated"
)
_USERS = select(edges.c.run_id).where(
    edges.c.artifact_digest == bindparam("digest"), edges.c.direction == "used", edges.c.run_id.in_(KEYS)
)
