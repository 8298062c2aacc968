"""Retention rules: what may go, and when.

A rule speaks of a kind, of what a workflow made, of both or of everything, and says for how long it is kept.
What no rule speaks of is kept. Where several rules speak of an artifact it is kept as long as the longest
says, so that adding a rule never shortens what another promises; and one that several workflows asked for is
kept for each of them. Time counts from when the artifact was last made, used, or had from the memo.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import delete, insert, select
from sqlalchemy.exc import IntegrityError

from mutoscope.platform.catalog.clock import now
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.pins import check_name
from mutoscope.platform.catalog.tables import retention_rules
from mutoscope.platform.durations import spell_duration
from mutoscope.platform.errors import InvalidParameter, UnknownReference
from mutoscope.platform.ids import new_id
from mutoscope.platform.refs import check_kind


@dataclass(frozen=True, slots=True)
class RetentionRule:
    """A row of `retention_rules`. None as kind or workflow: of any. `created_at`: seconds since the epoch."""

    name: str
    kind: str | None
    workflow: str | None
    keep_seconds: float
    created_at: float

    def __str__(self) -> str:
        return f"rule {self.name} keeps {spell_duration(self.keep_seconds)}"

    def speaks_of(self, kind: str, workflow: str | None) -> bool:
        """Whether the rule is about artifacts of that kind made within that workflow (None: in none)."""
        return self.kind in (None, kind) and self.workflow in (None, workflow)


@dataclass(frozen=True, slots=True)
class Policy:
    """What decides what is old: the rules, and the moment from which they count back. `horizon` is seconds
    since the epoch by the database's clock; nothing made or used after it is ever old."""

    rules: tuple[RetentionRule, ...]
    horizon: float

    @property
    def kinds(self) -> tuple[str, ...] | None:
        """The kinds some rule speaks of; None when one speaks of all."""
        named = {rule.kind for rule in self.rules if rule.kind is not None}
        return tuple(sorted(named)) if all(rule.kind is not None for rule in self.rules) else None

    @property
    def newest(self) -> float:
        """Nothing made after this can be old by any rule."""
        return self.horizon - min((rule.keep_seconds for rule in self.rules), default=0.0)


class Retention:
    """`catalog.retention`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self, name: str, keep_seconds: float, *, kind: str | None = None, workflow: str | None = None
    ) -> RetentionRule:
        """Add a rule; the next collection heeds it.

        Raises:
            InvalidParameter: the name is taken or cannot be used, the kind is none, or the time is negative.
        """
        check_name("name", name)
        check_kind(kind)
        if keep_seconds < 0:
            raise InvalidParameter("keep", keep_seconds, "use 0 or more seconds")
        values = {"name": name, "kind": kind, "workflow": workflow, "keep_seconds": keep_seconds}
        try:
            with self._database.write() as connection:
                connection.execute(insert(retention_rules).values(id=new_id(), created_at=now(), **values))
        except IntegrityError:
            raise InvalidParameter(
                "name", name, "a rule of that name exists: remove it first or use another"
            ) from None
        return self.get(name)

    def remove(self, name: str) -> RetentionRule:
        """Drop a rule. Raises UnknownReference when there is none of that name."""
        rule = self.get(name)
        with self._database.write() as connection:
            connection.execute(delete(retention_rules).where(retention_rules.c.name == name))
        return rule

    def get(self, name: str) -> RetentionRule:
        """The rule of that name. Raises UnknownReference."""
        for rule in self.list():
            if rule.name == name:
                return rule
        raise UnknownReference(f"no retention rule is named {name!r}: `mutoscope retention list` shows them")

    def list(self) -> builtins.list[RetentionRule]:
        """All of them, by name."""
        columns = (
            retention_rules.c.name,
            retention_rules.c.kind,
            retention_rules.c.workflow,
            retention_rules.c.keep_seconds,
            retention_rules.c.created_at,
        )
        with self._database.glance() as connection:
            rows = connection.execute(select(*columns).order_by(retention_rules.c.name))
            return [RetentionRule(*row) for row in rows]


def kept_by(rules: Sequence[RetentionRule], kind: str, workflow: str | None) -> RetentionRule | None:
    """The rule that keeps such an artifact longest; None when none speaks of it, so that it is kept."""
    speaking = [rule for rule in rules if rule.speaks_of(kind, workflow)]
    return max(speaking, key=lambda rule: rule.keep_seconds, default=None)
