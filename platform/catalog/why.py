"""Why a run was computed: its key parts, field by field, against those of the runs before it.

A memo key is a digest: of two that differ it says nothing. The key parts it was computed from are stored with
each run, so the miss explains itself: of the same card's earlier successes, the one whose parts differ least
is what the caller may have hoped to be answered by.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select

from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.diff import Difference, flat
from mutoscope.platform.catalog.edges import to_run
from mutoscope.platform.catalog.graph import ArtifactNode, read_artifacts
from mutoscope.platform.catalog.records import RunRecord
from mutoscope.platform.catalog.tables import runs

LOOKED_AT = 500
"""Earlier successes of the card that are compared, newest first. What lies further back is rarely what a
caller hopes for."""

_ORDER = ("card", "card_digest", "weights", "inputs", "parameters", "seed", "profile")
"""Key parts in the order people ask about them; all others follow by name."""


@dataclass(frozen=True, slots=True)
class Nearest:
    """The earlier success whose key parts differ least, the newest of several.

    Attributes:
        differences: earlier value on the left; weights and inputs under the names people know.
        fields: how many fields the two keys have together.
        among: how many earlier successes of the card were compared.
    """

    run: RunRecord
    differences: tuple[Difference, ...]
    fields: int
    among: int


class Why:
    """`catalog.why`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def nearest(self, run: RunRecord) -> Nearest | None:
        """The earlier success of the run's card that its key came closest to; None where there is none, or
        the run has no key."""
        if run.key_parts is None or run.card is None:
            return None
        query = (
            select(runs)
            .where(
                runs.c.card == run.card,
                runs.c.state == "succeeded",
                runs.c.key_parts.is_not(None),
                runs.c.created_at <= run.created_at,
                runs.c.id != run.id,
            )
            .order_by(runs.c.created_at.desc(), runs.c.id.desc())
            .limit(LOOKED_AT)
        )
        with self._database.read() as connection:
            earlier = [to_run(row) for row in connection.execute(query)]
            if not earlier:
                return None
            here = flat(run.key_parts)
            # min() keeps the first of equals: the newest.
            closest = min(earlier, key=lambda one: len(_unlike(flat(one.key_parts or {}), here)))
            there = flat(closest.key_parts or {})
            unlike = _unlike(there, here)
            known = read_artifacts(connection, {*_digests(unlike, there), *_digests(unlike, here)})
        named = tuple(
            Difference(
                "code" if field == "card_digest" else field,
                _named(run.card, known, field, there.get(field)),
                _named(run.card, known, field, here.get(field)),
            )
            for field in unlike
        )
        return Nearest(closest, named, len({*there, *here}), len(earlier))

    def equal_failures(self, run: RunRecord) -> int:
        """How many earlier runs of the same key ended without outputs: failed or cancelled."""
        if run.memo_key is None:
            return 0
        query = select(func.count()).where(
            runs.c.memo_key == run.memo_key,
            runs.c.state.in_(("failed", "cancelled")),
            runs.c.created_at <= run.created_at,
            runs.c.id != run.id,
        )
        with self._database.glance() as connection:
            return int(connection.execute(query).scalar_one())


def _unlike(there: Mapping[str, str], here: Mapping[str, str]) -> list[str]:
    """Fields that differ, in `_ORDER`."""
    unlike = [field for field in {*there, *here} if there.get(field) != here.get(field)]
    return sorted(unlike, key=_rank)


def _rank(field: str) -> tuple[int, str]:
    part = field.partition(".")[0]
    return (_ORDER.index(part) if part in _ORDER else len(_ORDER), field)


def _digests(fields: list[str], values: Mapping[str, str]) -> set[str]:
    return {values[field] for field in fields if field in values and _names_artifact(field)}


def _names_artifact(field: str) -> bool:
    return field.startswith(("weights.", "inputs."))


def _named(card: str, known: Mapping[str, ArtifactNode], field: str, value: str | None) -> str | None:
    """The value in words: weights by their version, inputs by their reference, other digests cut short."""
    if value is None:
        return None
    node: Any = known.get(value) if _names_artifact(field) else None
    if node is None:
        return value[:12] if field == "card_digest" or _names_artifact(field) else value
    versions = [version for version in node.versions if version.card == card] or node.versions
    return str(versions[0]) if versions else str(node.ref)
