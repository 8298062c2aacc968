"""Contradictions: rows that cannot both be true. Each question is one query, answered by nothing in a sound
catalog.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, exists, func, inspect, or_, select

from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.records import REPLAYABLE_KINDS
from mutoscope.platform.catalog.tables import (
    artifacts,
    edges,
    in_flight,
    members,
    metadata,
    pins,
    runs,
    weight_aliases,
    weight_versions,
)
from mutoscope.platform.catalog.weights import points_now


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A row that contradicts another: its name as people know it, the artifact it is about, what it says."""

    subject: str
    digest: str | None
    detail: str


class Contradictions:
    """`catalog.contradictions`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # Bytes that something promises

    def incomplete_containers(self) -> list[Anomaly]:
        """Present containers of which a member is not."""
        container, member = artifacts.alias("container"), artifacts.alias("member")
        query = (
            select(container.c.digest, func.count().label("gone"), func.min(members.c.path), container.c.kind)
            .select_from(members)
            .join(container, container.c.digest == members.c.container)
            .join(member, member.c.digest == members.c.artifact_digest)
            .where(container.c.state == "present", member.c.state != "present")
            .group_by(container.c.digest, container.c.kind)
            .order_by(container.c.digest)
        )
        return [
            Anomaly(f"{kind}:{digest[:12]}", digest, path if gone == 1 else f"{path} and {gone - 1} more")
            for digest, gone, path, kind in self._all(query)
        ]

    def dead_aliases(self) -> list[Anomaly]:
        """Aliases whose current version has no bytes."""
        query = (
            select(
                weight_aliases.c.name, *weight_versions.c["card", "component", "ordinal", "artifact_digest"]
            )
            .join(weight_versions, weight_versions.c.id == weight_aliases.c.version_id)
            .join(artifacts, artifacts.c.digest == weight_versions.c.artifact_digest)
            .where(points_now(), artifacts.c.state != "present")
            .order_by(weight_versions.c.card, weight_versions.c.component)
        )
        return [
            Anomaly(f"{card}/{component}@{name}", digest, f"{card}/{component}@{ordinal}")
            for name, card, component, ordinal, digest in self._all(query)
        ]

    def dead_pins(self) -> list[Anomaly]:
        """Pins whose artifact has no bytes."""
        query = (
            select(pins.c.name, artifacts.c.kind, artifacts.c.digest)
            .join(artifacts, artifacts.c.digest == pins.c.artifact_digest)
            .where(artifacts.c.state != "present")
            .order_by(pins.c.name)
        )
        return [Anomaly(name, digest, f"{kind}:{digest[:12]}") for name, kind, digest in self._all(query)]

    def runs_without_outputs(self) -> list[Anomaly]:
        """Runs of cards that succeeded and generated nothing."""
        made = exists().where(edges.c.run_id == runs.c.id, edges.c.direction == "generated")
        query = (
            select(runs.c.id, runs.c.card)
            .where(runs.c.kind.in_(REPLAYABLE_KINDS), runs.c.state == "succeeded", ~made)
            .order_by(runs.c.id)
        )
        return [Anomaly(id_, None, str(card)) for id_, card in self._all(query)]

    def unfinished_with_outputs(self) -> list[Anomaly]:
        """Runs that did not succeed and yet generated something."""
        query = (
            select(runs.c.id, runs.c.state, func.count())
            .join(edges, edges.c.run_id == runs.c.id)
            .where(runs.c.state != "succeeded", edges.c.direction == "generated")
            .group_by(runs.c.id, runs.c.state)
            .order_by(runs.c.id)
        )
        return [
            Anomaly(id_, None, f"{state}, with {count} outputs") for id_, state, count in self._all(query)
        ]

    def impossible_runs(self) -> list[Anomaly]:
        """Runs whose state and times cannot both be true. A running run with a lease that ran out is none: it
        is taken again."""
        query = (
            select(runs.c.id, runs.c.state, runs.c.finished_at)
            .where(
                or_(
                    in_flight & runs.c.finished_at.is_not(None),
                    ~in_flight & runs.c.finished_at.is_(None),
                )
            )
            .order_by(runs.c.id)
        )
        return [
            Anomaly(id_, None, f"{state} {'without' if finished is None else 'with'} a time of its end")
            for id_, state, finished in self._all(query)
        ]

    # The database itself

    def broken_references(self) -> list[Anomaly]:
        """Rows that refer to rows which do not exist, by table. Postgres lets that happen never; a SQLite
        file that was edited with foreign keys off may hold some."""
        if not self._database.is_sqlite:
            return []
        with self._database.read() as connection:
            found = connection.exec_driver_sql(
                'select "table", parent, count(*) from pragma_foreign_key_check() group by 1, 2'
            ).all()
        return [
            Anomaly(table, None, f"{_rows(count)} to {parent} that are not there")
            for table, parent, count in found
        ]

    def damaged_pages(self) -> list[Anomaly]:
        """What SQLite finds wrong with its file. Reads all of it. Postgres has checks of its own."""
        if not self._database.is_sqlite:
            return []
        with self._database.read() as connection:
            found = connection.exec_driver_sql("pragma integrity_check(20)").scalars().all()
        return [Anomaly("catalog", None, line) for line in found if line != "ok"]

    def schema_differences(self) -> list[Anomaly]:
        """Tables, columns and indices that the code expects and the database lacks."""
        found: list[Anomaly] = []
        with self._database.read() as connection:
            look = inspect(connection)
            tables = set(look.get_table_names())
            for table in metadata.sorted_tables:
                if table.name not in tables:
                    found.append(Anomaly(table.name, None, "the table is missing"))
                    continue
                there = {column["name"] for column in look.get_columns(table.name)}
                there |= {str(index["name"]) for index in look.get_indexes(table.name)}
                wanted = [*(column.name for column in table.c), *sorted(str(i.name) for i in table.indexes)]
                found += [
                    Anomaly(table.name, None, f"{name} is missing") for name in wanted if name not in there
                ]
        return found

    def _all(self, query: Select[*tuple[Any, ...]]) -> list[Any]:
        with self._database.glance() as connection:
            return list(connection.execute(query).all())


def _rows(count: int) -> str:
    return "1 row refers" if count == 1 else f"{count} rows refer"
