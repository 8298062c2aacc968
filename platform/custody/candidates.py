"""What a mark has found, kept on disk: a catalog of millions must not need gigabytes to be collected.

A private, temporary SQLite file that vanishes with the process. It knows artifacts by digest and nothing of
the catalog; resolving what containers keep, and putting things in order, is done where they lie.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter

from mutoscope.platform.catalog.reachability import Recipe, Suspect

_SCHEMA = """
create table suspects (
    digest text primary key,
    kind text not null,
    size integer not null,
    level integer not null default 0,  -- containers before their members
    run_id text,                       -- of the cheapest run that could make it again
    seconds real
) without rowid;
create table kept (digest text primary key) without rowid;
create table held (container text, member text, primary key (container, member)) without rowid;
"""
_CACHE_KIB = 16_384
_FREED = "max(size, 1) / max(seconds, 0.001)"
_MOST_LEVELS = 16


@dataclass(frozen=True, slots=True)
class Candidate:
    """An artifact that nothing keeps. `run_id` and `seconds` say how it could be made again; None: it
    cannot."""

    digest: str
    kind: str
    size: int
    run_id: str | None = None
    seconds: float | None = None

    @property
    def bytes_per_second(self) -> float | None:
        """What a second of computing it again is worth in bytes."""
        return None if self.seconds is None else self.size / max(self.seconds, 0.001)


@dataclass(frozen=True, slots=True)
class KindTotal:
    """Candidates of one kind: how many, their bytes, and how many of them a replay could make again."""

    kind: str
    count: int
    size: int
    replayable: int


class Candidates:
    """The suspects of one mark. For one thread; close it to free the disk."""

    def __init__(self) -> None:
        self._rows = sqlite3.connect("")  # an empty name: a temporary file of this connection's own
        self._rows.executescript(f"pragma cache_size = -{_CACHE_KIB}; pragma synchronous = off;" + _SCHEMA)

    def suspect(self, found: Iterable[Suspect]) -> None:
        """Add artifacts that no root keeps by itself."""
        rows = ((suspect.digest, suspect.kind, suspect.size) for suspect in found)
        self._rows.executemany("insert or ignore into suspects (digest, kind, size) values (?, ?, ?)", rows)

    def keep(self, digests: Iterable[str]) -> None:
        """These stay, whatever else is known of them."""
        self._rows.executemany("insert or ignore into kept values (?)", ((digest,) for digest in digests))

    def hold(self, pairs: Iterable[tuple[str, str]]) -> None:
        """(container, member): the member stays if the container does."""
        self._rows.executemany("insert or ignore into held values (?, ?)", pairs)

    def resolve(self) -> None:
        """Drop the suspects that something keeps after all, and put containers before their members."""
        self._rows.execute("delete from suspects where digest in (select digest from kept)")
        saved = "delete from suspects where digest in (select member from held where container not in"
        while self._rows.execute(f"{saved} (select digest from suspects))").rowcount:
            pass
        deeper = (
            "update suspects set level = level + 1 where level = ? and digest in"
            " (select member from held join suspects as above on above.digest = container"
            "  where above.level = ? and container <> member)"
        )
        level = 0
        while level < _MOST_LEVELS and self._rows.execute(deeper, (level, level)).rowcount:
            level += 1

    def price(self, recipes: Iterable[Recipe]) -> None:
        """Note how candidates could be made again."""
        rows = ((recipe.run_id, recipe.seconds, recipe.digest) for recipe in recipes)
        self._rows.executemany("update suspects set run_id = ?, seconds = ? where digest = ?", rows)

    def digests(self, size: int) -> Iterator[list[str]]:
        """All of them, in parts, in order of digest; the parts may be written to meanwhile."""
        after = ""
        query = "select digest from suspects where digest > ? order by digest limit ?"
        while part := [row[0] for row in self._rows.execute(query, (after, size))]:
            yield part
            after = part[-1]

    def batches(self, size: int) -> Iterator[list[str]]:
        """In the order of collection: containers first, then by bytes gained per second of computing again;
        last what cannot be made again. No part holds both a container and a member of it."""
        query = f"select level, digest from suspects order by level, seconds is null, {_FREED} desc, digest"
        for _, rows in groupby(self._rows.execute(query), key=itemgetter(0)):
            while part := [digest for _, digest in islice(rows, size)]:
                yield part

    def by_kind(self) -> list[KindTotal]:
        """Largest first."""
        query = (
            "select kind, count(*), sum(size), count(seconds) from suspects group by kind order by 3 desc, 1"
        )
        return [KindTotal(*row) for row in self._rows.execute(query)]

    def largest(self, limit: int) -> list[Candidate]:
        """The largest candidates."""
        return self._first("1", "size desc", limit)

    def replayable(self, limit: int) -> list[Candidate]:
        """Those that could be made again, in the order of collection."""
        return self._first("seconds is not null", f"{_FREED} desc", limit)

    def close(self) -> None:
        self._rows.close()

    def _first(self, condition: str, order: str, limit: int) -> list[Candidate]:
        query = f"select digest, kind, size, run_id, seconds from suspects where {condition} order by {order}"
        return [Candidate(*row) for row in self._rows.execute(f"{query}, digest limit ?", (limit,))]
