"""Weight versions: named, ordered pointers to `weights` artifacts, per component of a card.

``flux-t2i/transformer@12`` is the twelfth version; ``@live`` is an alias. Aliases move, versions never
change.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, bindparam, func, insert, select

from mutoscope.platform.catalog.clock import now
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.tables import artifacts, weight_aliases, weight_versions
from mutoscope.platform.errors import InvalidParameter, UnknownReference
from mutoscope.platform.ids import new_id
from mutoscope.platform.refs import SHOWN_DIGITS, TRAINER_SUFFIX

LIVE = "live"
"""The alias that new runs are pinned to."""


@dataclass(frozen=True, slots=True)
class WeightVersion:
    """A row of `weight_versions`; `str()` is the name people use. `created_at`: seconds since the epoch."""

    id: str
    card: str
    component: str
    ordinal: int
    digest: str
    parent_id: str | None
    produced_by_run: str | None
    metrics: Mapping[str, Any] | None
    created_at: float

    def __str__(self) -> str:
        return f"{self.card}/{self.component}@{self.ordinal}"


VERSION_COLUMNS = (
    weight_versions.c.id,
    weight_versions.c.card,
    weight_versions.c.component,
    weight_versions.c.ordinal,
    weight_versions.c.artifact_digest,
    weight_versions.c.parent_id,
    weight_versions.c.produced_by_run,
    weight_versions.c.metrics,
    weight_versions.c.created_at,
)


def to_version(row: Row[*tuple[Any, ...]]) -> WeightVersion:
    """The record of a row that holds the version's columns in order."""
    return WeightVersion(*row)


class Weights:
    """`catalog.weights`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def publish(
        self,
        card: str,
        component: str,
        artifact_digest: str,
        run_id: str | None = None,
        parent: WeightVersion | None = None,
        metrics: Mapping[str, Any] | None = None,
    ) -> WeightVersion:
        """Add a version and make it live, or return the live one when it has these bytes already.

        Args:
            run_id: the run that made the weights. parent: the version they were trained from.

        Raises:
            UnknownReference: the catalog does not know the artifact.
        """
        with self._database.write() as connection:
            take_turns(self._database, connection, card)
            return _publish(connection, card, component, artifact_digest, run_id, parent, metrics)

    def publish_all(
        self,
        card: str,
        artifact_digests: Mapping[str, str],
        run_id: str | None = None,
        *,
        alias: str = LIVE,
        parents: Mapping[str, WeightVersion] = MappingProxyType({}),
    ) -> dict[str, WeightVersion]:
        """Point an alias at a complete set of components in one transaction; nobody sees a mixture of sets.

        A component whose version under the alias has these bytes already keeps it; where the alias points
        nowhere yet, the newest version with these bytes takes it. A component outside the set is retired from
        the alias; its versions stay.

        Args:
            artifact_digests: component to the digest of its weights.
            alias: what the set becomes; only "live" is what new runs use.
            parents: by component, the version that a new one was made from.

        Raises:
            InvalidParameter: no name for an alias.
            UnknownReference: the catalog does not know one of the artifacts.
        """
        check_alias(alias)
        with self._database.write() as connection:
            take_turns(self._database, connection, card)
            published = {
                component: _publish(
                    connection, card, component, digest, run_id, parents.get(component), alias=alias
                )
                for component, digest in artifact_digests.items()
            }
            for version in connection.execute(_ALL_ALIASED, {"card": card, "name": alias}).all():
                if version.component not in artifact_digests:
                    _point(connection, alias, card, version.component, None)
        return published

    def live(self, card: str) -> dict[str, WeightVersion]:
        """The live version of each component; empty for a card without weights."""
        return self.aliased(card, LIVE)

    def aliased(self, card: str, alias: str) -> dict[str, WeightVersion]:
        """The version of each component that has the alias; empty if none has."""
        with self._database.glance() as connection:
            rows = connection.execute(_ALL_ALIASED, {"card": card, "name": alias})
            return {row.component: to_version(row) for row in rows}

    def aliases(self, card: str | None = None) -> dict[str, builtins.list[str]]:
        """The aliases that point at each version now, by its name, sorted."""
        query = (
            select(weight_aliases.c.name, *VERSION_COLUMNS)
            .join(weight_versions, weight_aliases.c.version_id == weight_versions.c.id)
            .where(points_now())
            .order_by(weight_aliases.c.name)
        )
        if card is not None:
            query = query.where(weight_aliases.c.card == card)
        found: dict[str, builtins.list[str]] = {}
        with self._database.glance() as connection:
            for name, *version in connection.execute(query):
                found.setdefault(str(WeightVersion(*version)), []).append(name)
        return found

    def get(self, name: str) -> WeightVersion:
        """The version named ``card/component@12`` or ``card/component@alias``. Raises UnknownReference."""
        path, at, suffix = name.partition("@")
        card, slash, component = path.partition("/")
        if not (at and slash and card and component and suffix):
            raise UnknownReference(
                f"{name!r} names no weights: write card/component@number or card/component@live"
            )
        if suffix.isdecimal():
            query = select(*VERSION_COLUMNS).where(
                weight_versions.c.card == card,
                weight_versions.c.component == component,
                weight_versions.c.ordinal == int(suffix),
            )
        else:
            query = _aliased(card, component, suffix)
        with self._database.glance() as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            raise UnknownReference(
                f"no weights are named {name!r}: `mutoscope weights list` shows those there are"
            )
        return to_version(row)

    def list(self, card: str | None = None) -> builtins.list[WeightVersion]:
        """All versions, by card and component, oldest first."""
        query = select(*VERSION_COLUMNS).order_by(
            weight_versions.c.card, weight_versions.c.component, weight_versions.c.ordinal
        )
        if card is not None:
            query = query.where(weight_versions.c.card == card)
        with self._database.glance() as connection:
            return [to_version(row) for row in connection.execute(query)]

    def set_alias(self, name: str, version: WeightVersion) -> None:
        """Point an alias of the version's component at it. Where it pointed before stays on record."""
        check_alias(name)
        with self._database.write() as connection:
            take_turns(self._database, connection, version.card)
            move_alias(connection, name, version)

    def alias_history(
        self, card: str, component: str, name: str
    ) -> builtins.list[tuple[float, WeightVersion | None]]:
        """Where the alias has pointed: (since when, version), oldest first; the last one is current.

        None instead of a version: from then on the component had no such alias.
        """
        query = (
            select(*VERSION_COLUMNS, weight_aliases.c.created_at.label("since"))
            .select_from(weight_aliases)
            .outerjoin(weight_versions, weight_aliases.c.version_id == weight_versions.c.id)
            .where(
                weight_aliases.c.card == card,
                weight_aliases.c.component == component,
                weight_aliases.c.name == name,
            )
            .order_by(weight_aliases.c.id)
        )
        with self._database.glance() as connection:
            rows = connection.execute(query).all()
        return [(row.since, WeightVersion(*row[:-1]) if row.id is not None else None) for row in rows]

    def versions_of_digest(self, digest: str) -> builtins.list[WeightVersion]:
        """Every name those bytes have, oldest first."""
        query = (
            select(*VERSION_COLUMNS)
            .where(weight_versions.c.artifact_digest == digest)
            .order_by(weight_versions.c.created_at, weight_versions.c.id)
        )
        with self._database.glance() as connection:
            return [to_version(row) for row in connection.execute(query)]


def check_alias(name: str) -> None:
    """Raise InvalidParameter for what cannot be told from a number, or could not be typed."""
    if not name or name.isdecimal() or not name.replace("-", "").replace("_", "").isalnum():
        raise InvalidParameter("alias", name, "use letters, digits, - and _, not a number alone")


def take_turns(database: Database, connection: Connection, card: str) -> None:
    """Ordinals and aliases of a card are decided one after another: the next follows from the last."""
    database.serialise(connection, f"weights {card}")


def move_alias(connection: Connection, name: str, version: WeightVersion) -> bool:
    """Point an alias of the version's component at it; False if it does already. Its card's turn is taken."""
    current = connection.execute(_aliased(version.card, version.component, name)).one_or_none()
    if current is not None and current.id == version.id:
        return False
    _point(connection, name, version.card, version.component, version.id)
    return True


def _publish(
    connection: Connection,
    card: str,
    component: str,
    artifact_digest: str,
    run_id: str | None,
    parent: WeightVersion | None = None,
    metrics: Mapping[str, Any] | None = None,
    alias: str = LIVE,
) -> WeightVersion:
    current = connection.execute(_aliased(card, component, alias)).one_or_none()
    if current is not None and current.artifact_digest == artifact_digest:
        return to_version(current)
    if current is None:
        # Bytes that have a name, such as those an archive brought, keep it under a new alias. Bytes that come
        # back after others are an event in the alias's history, and get a number of their own.
        named = connection.execute(_NAMED, {"card": card, "component": component, "digest": artifact_digest})
        if (earlier := named.first()) is not None:
            _point(connection, alias, card, component, earlier.id)
            return to_version(earlier)
    known = select(artifacts.c.digest).where(artifacts.c.digest == artifact_digest)
    if connection.execute(known).first() is None:
        raise UnknownReference(f"weights {artifact_digest[:12]} are not in the catalog: record them first")
    of_component = (weight_versions.c.card == card, weight_versions.c.component == component)
    last = connection.execute(select(func.max(weight_versions.c.ordinal)).where(*of_component)).scalar()
    row = connection.execute(
        insert(weight_versions)
        .values(
            id=new_id(),
            card=card,
            component=component,
            ordinal=(last or 0) + 1,
            artifact_digest=artifact_digest,
            parent_id=parent.id if parent else None,
            produced_by_run=run_id,
            metrics=dict(metrics) if metrics is not None else None,
            created_at=now(),
        )
        .returning(*VERSION_COLUMNS)
    ).one()
    version = to_version(row)
    _point(connection, alias, card, component, version.id)
    return version


_NAMED = (
    select(*VERSION_COLUMNS)
    .where(
        weight_versions.c.card == bindparam("card"),
        weight_versions.c.component == bindparam("component"),
        weight_versions.c.artifact_digest == bindparam("digest"),
    )
    .order_by(weight_versions.c.ordinal.desc())
    .limit(1)
)

# Built once: every run that is planned reads the live weights of its card.
_ALL_ALIASED = (
    select(*VERSION_COLUMNS)
    .join(weight_aliases, weight_aliases.c.version_id == weight_versions.c.id)
    .where(
        weight_aliases.c.id.in_(
            select(func.max(weight_aliases.c.id))
            .where(weight_aliases.c.card == bindparam("card"), weight_aliases.c.name == bindparam("name"))
            .group_by(weight_aliases.c.component)
        )
    )
    .order_by(weight_versions.c.component)
)


def name_for(card: str | None, digest: str, versions: Iterable[WeightVersion]) -> str:
    """What people call those bytes as a card's weights: the newest of the names that are the card's own, or
    of the card that it trains; a digest where it has none. `versions`: every name the bytes have, oldest
    first."""
    trained = (card or "").removesuffix(TRAINER_SUFFIX)
    own = [version for version in versions if version.card in (card, trained)]
    return str(own[-1]) if own else digest[:SHOWN_DIGITS]


def points_now() -> ColumnElement[bool]:
    """Whether a row of `weight_aliases` is its alias's newest: where it points now."""
    newest = select(func.max(weight_aliases.c.id)).group_by(
        weight_aliases.c.card, weight_aliases.c.component, weight_aliases.c.name
    )
    return weight_aliases.c.id.in_(newest)


def _aliased(card: str, component: str, name: str) -> Select[Any]:
    newest = select(func.max(weight_aliases.c.id)).where(
        weight_aliases.c.card == card, weight_aliases.c.component == component, weight_aliases.c.name == name
    )
    return (
        select(*VERSION_COLUMNS)
        .join(weight_aliases, weight_aliases.c.version_id == weight_versions.c.id)
        .where(weight_aliases.c.id == newest.scalar_subquery())
    )


def _point(connection: Connection, name: str, card: str, component: str, version_id: str | None) -> None:
    connection.execute(
        insert(weight_aliases).values(
            card=card, component=component, name=name, version_id=version_id, created_at=now()
        )
    )
