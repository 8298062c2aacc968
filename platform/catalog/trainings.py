"""Trainings: what each was set up with, the versions it made, and what it noted on the way.

A training has a name, and the name is also the alias of its newest versions, its head. Everything here is
idempotent: a training that is started again passes by what it did before, and finds it done.

    NAME         the head: the newest version of each component that it trains
    NAME-base    what it began from, of every card that it uses; looked up once
    NAME-best    what its evaluations liked best

A training and its notes are runs that were done outside the queue, found by keys of their own, so that
lineage, archives and the collector need to know nothing of them.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, bindparam, func, insert, select

from mutoscope.platform import ids
from mutoscope.platform.catalog.artifacts import record_all
from mutoscope.platform.catalog.clock import now
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.edges import add_edges, require_known, roles
from mutoscope.platform.catalog.keys import KEYS, by_keys
from mutoscope.platform.catalog.records import WEIGHTS_ROLE
from mutoscope.platform.catalog.tables import runs, weight_aliases, weight_versions
from mutoscope.platform.catalog.weights import (
    LIVE,
    VERSION_COLUMNS,
    WeightVersion,
    check_alias,
    move_alias,
    take_turns,
    to_version,
)
from mutoscope.platform.errors import InvalidParameter, UnknownReference
from mutoscope.platform.refs import ArtifactRef

TRAINING, NOTE = "training", "training_note"
"""Kinds of the runs that stand for a training, and for what it noted of an iteration."""

BASE, BEST = "-base", "-best"
"""Ends of the names of a training's further aliases."""

MOST_LETTERS = 58
"""Of a training's name: an alias has 64."""

_DOMAIN, _NOTE_DOMAIN = "mutoscope.training/1", "mutoscope.training-note/1"


@dataclass(frozen=True, slots=True)
class Training:
    """A training as it was set up. `created_at`: seconds since the epoch.

    Attributes:
        configuration: all that decides its course, as plain JSON.
        base: card and component to the name of the version that it began from.
    """

    id: str
    name: str
    configuration: Mapping[str, Any]
    base: Mapping[str, Mapping[str, str]]
    workflow_run_id: str | None
    created_at: float


@dataclass(frozen=True, slots=True)
class Note:
    """What a training noted: of an iteration, under a title such as ``iteration``; artifacts by role."""

    id: str
    title: str
    iteration: int
    artifacts: Mapping[str, ArtifactRef]
    created_at: float


class Trainings:
    """`catalog.trainings`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(
        self,
        name: str,
        configuration: Mapping[str, Any],
        versions: Iterable[WeightVersion],
        *,
        heads: Iterable[tuple[str, str]] = (),
        workflow_run_id: str | None = None,
    ) -> Training:
        """Set a training up, or return the one of that name as it was set up then.

        Args:
            versions: of every card that it uses, what it begins from. They get the alias NAME-base.
            heads: card and component of those that it trains; they get the alias NAME.

        Raises:
            InvalidParameter: no name for a training, or one that is an alias of something else.
        """
        check_name(name)
        chosen = list(versions)
        base: dict[str, dict[str, str]] = {}
        for version in chosen:
            base.setdefault(version.card, {})[version.component] = str(version)
        key = ids.digest(_DOMAIN, name)
        with self._database.write() as connection:
            self._database.serialise(connection, f"training {name}")
            found = connection.execute(_BY_KEY, {"key": key}).one_or_none()
            if found is not None:
                return _training(found)
            _refuse_taken(connection, name)
            told = {"name": name, "configuration": dict(configuration), "base": base}
            run_id = _insert_run(connection, TRAINING, key, told, workflow_run_id)
            used = {f"{WEIGHTS_ROLE}{one.card}/{one.component}": one.digest for one in chosen}
            add_edges(connection, run_id, "used", used)
            trained = set(heads)
            for version in sorted(chosen, key=str):
                take_turns(self._database, connection, version.card)
                move_alias(connection, name + BASE, version)
                if (version.card, version.component) in trained:
                    move_alias(connection, name, version)
            return _training(connection.execute(_BY_KEY, {"key": key}).one())

    def get(self, name: str) -> Training:
        """The training of that name. Raises UnknownReference."""
        with self._database.glance() as connection:
            row = connection.execute(_BY_KEY, {"key": ids.digest(_DOMAIN, name)}).one_or_none()
        if row is None:
            raise UnknownReference(f"no training is named {name!r}: `mutoscope rl ls` lists them")
        return _training(row)

    def list(self, limit: int = 100) -> builtins.list[Training]:
        """Newest first."""
        query = select(runs).where(runs.c.kind == TRAINING).order_by(runs.c.id.desc()).limit(limit)
        with self._database.glance() as connection:
            return [_training(row) for row in connection.execute(query)]

    def publish_step(
        self,
        card: str,
        component: str,
        digest: str,
        run_id: str,
        parent: WeightVersion,
        *,
        alias: str,
        metrics: Mapping[str, Any] | None = None,
    ) -> WeightVersion:
        """The version that a training step made; the same however often it is asked for.

        A step whose weights are its parent's bytes taught nothing: the parent stays the version. The alias
        moves to a version once: a training that passes by again leaves it where it is by now.

        Args:
            run_id: the step. parent: the version it trained.
            alias: the training's head.

        Raises:
            InvalidParameter: no name for an alias.
            UnknownReference: the catalog does not know the artifact.
        """
        check_alias(alias)
        if digest == parent.digest and (card, component) == (parent.card, parent.component):
            return parent
        with self._database.write() as connection:
            take_turns(self._database, connection, card)
            asked = {"card": card, "component": component, "digest": digest, "run": run_id}
            found = connection.execute(_OF_STEP, asked).one_or_none()
            version = (
                to_version(found)
                if found is not None
                else _insert_version(connection, asked, parent, metrics)
            )
            _advance(connection, alias, version)
            return version

    def advance(self, alias: str, version: WeightVersion) -> bool:
        """Move an alias to a version, unless it was there before; whether it moved."""
        check_alias(alias)
        with self._database.write() as connection:
            take_turns(self._database, connection, version.card)
            return _advance(connection, alias, version)

    def note(
        self,
        name: str,
        title: str,
        iteration: int,
        made: Mapping[str, ArtifactRef],
        *,
        used: Mapping[str, ArtifactRef] | None = None,
        workflow_run_id: str | None = None,
    ) -> Note:
        """Record what a training concluded of an iteration; found again where it was noted before.

        Args:
            title: what it is, such as ``iteration``. A training notes each title once for an iteration.
            made: artifacts by role, already stored. used: what they were concluded from.

        Raises:
            InvalidParameter: it was noted before and said otherwise: what the training rests on has changed.
        """
        key = ids.digest(_NOTE_DOMAIN, [name, title, iteration])
        referred = {role: ref.digest for role, ref in (used or {}).items()}
        wanted = {role: ref.digest for role, ref in made.items()}
        with self._database.write() as connection:
            self._database.serialise(connection, f"training {name}")
            found = connection.execute(_BY_KEY, {"key": key}).one_or_none()
            if found is None:
                record_all(self._database, connection, made.values())
                told = {"training": name, "title": title, "iteration": iteration}
                run_id = _insert_run(connection, NOTE, key, told, workflow_run_id)
                require_known(connection, referred)
                add_edges(connection, run_id, "used", referred)
                add_edges(connection, run_id, "generated", wanted)
                found = connection.execute(_BY_KEY, {"key": key}).one()
            noted = _note(found, roles(connection, found.id, "generated"))
        if {role: ref.digest for role, ref in noted.artifacts.items()} != wanted:
            raise InvalidParameter(
                "name",
                name,
                f"{title} {iteration} came out differently before: the code, a card or the numeric contract "
                "of the workers has changed since; go on under another name",
            )
        return noted

    def notes(self, name: str, title: str, iterations: Iterable[int]) -> builtins.list[Note]:
        """What a training noted of these iterations under a title, in their order; those without are left
        out."""
        keys = {ids.digest(_NOTE_DOMAIN, [name, title, iteration]) for iteration in iterations}
        with self._database.read() as connection:
            found = {row.memo_key: row for row in by_keys(connection, _BY_KEYS, keys)}
            notes = [_note(row, roles(connection, row.id, "generated")) for row in found.values()]
        return sorted(notes, key=lambda note: note.iteration)


def check_name(name: str) -> None:
    """Raise InvalidParameter for what cannot be the name of a training and of its aliases."""
    if name == LIVE or name.endswith((BASE, BEST)) or len(name) > MOST_LETTERS:
        remedy = f"use another than {LIVE}, not ending in {BASE} or {BEST}, of {MOST_LETTERS} letters at most"
        raise InvalidParameter("name", name, remedy)
    try:
        check_alias(name)
    except InvalidParameter as error:
        raise InvalidParameter("name", name, error.remedy) from None


def _refuse_taken(connection: Connection, name: str) -> None:
    """A name whose aliases are in use by something else would move them."""
    taken = connection.execute(_TAKEN, {"names": [name, name + BASE, name + BEST]}).scalars().first()
    if taken is not None:
        raise InvalidParameter("name", name, f"{taken!r} is an alias of other weights: use another name")


def _insert_run(
    connection: Connection,
    kind: str,
    key: str,
    parameters: Mapping[str, Any],
    workflow_run_id: str | None,
) -> str:
    run_id = ids.new_id()
    connection.execute(
        insert(runs).values(
            id=run_id,
            kind=kind,
            memo_key=key,
            parameters=dict(parameters),
            state="succeeded",
            workflow_run_id=workflow_run_id,
            created_at=now(),
            started_at=now(),
            finished_at=now(),
        )
    )
    return run_id


def _insert_version(
    connection: Connection, asked: Mapping[str, str], parent: WeightVersion, metrics: Mapping[str, Any] | None
) -> WeightVersion:
    require_known(connection, {f"{WEIGHTS_ROLE}{asked['component']}": asked["digest"]})
    last = connection.execute(_LAST, {"card": asked["card"], "component": asked["component"]}).scalar()
    row = connection.execute(
        insert(weight_versions)
        .values(
            id=ids.new_id(),
            card=asked["card"],
            component=asked["component"],
            ordinal=(last or 0) + 1,
            artifact_digest=asked["digest"],
            parent_id=parent.id,
            produced_by_run=asked["run"],
            metrics=dict(metrics) if metrics is not None else None,
            created_at=now(),
        )
        .returning(*VERSION_COLUMNS)
    ).one()
    return to_version(row)


def _advance(connection: Connection, alias: str, version: WeightVersion) -> bool:
    been = connection.execute(_POINTED, {"name": alias, "version": version.id}).first()
    return been is None and move_alias(connection, alias, version)


def _training(row: Row[*tuple[Any, ...]]) -> Training:
    told = row.parameters
    return Training(
        row.id, told["name"], told["configuration"], told["base"], row.workflow_run_id, row.created_at
    )


def _note(row: Row[*tuple[Any, ...]], made: Mapping[str, ArtifactRef]) -> Note:
    return Note(row.id, row.parameters["title"], row.parameters["iteration"], made, row.created_at)


# The first of a key counts: an archive may bring a training of a name that is in use here.
_BY_KEY = select(runs).where(runs.c.memo_key == bindparam("key")).order_by(runs.c.id).limit(1)
_BY_KEYS = select(runs).where(runs.c.memo_key.in_(KEYS)).order_by(runs.c.id.desc())
_OF_STEP = (
    select(*VERSION_COLUMNS)
    .where(
        weight_versions.c.card == bindparam("card"),
        weight_versions.c.component == bindparam("component"),
        weight_versions.c.artifact_digest == bindparam("digest"),
        weight_versions.c.produced_by_run == bindparam("run"),
    )
    .order_by(weight_versions.c.ordinal)
    .limit(1)
)
_LAST = select(func.max(weight_versions.c.ordinal)).where(
    weight_versions.c.card == bindparam("card"), weight_versions.c.component == bindparam("component")
)
_POINTED = (
    select(weight_aliases.c.id)
    .where(weight_aliases.c.name == bindparam("name"), weight_aliases.c.version_id == bindparam("version"))
    .limit(1)
)
_TAKEN = select(weight_aliases.c.name).where(weight_aliases.c.name.in_(bindparam("names", expanding=True)))
