"""Schema revisions: what the code expects, what a database has, and how one becomes the other.

Opening checks and never upgrades: an upgrade is a decision of whoever runs the stack, and a process that
merely reads must not change the database under an older one.

Each revision is one transaction. A revision that changes tables is short: it holds locks on them. One that
rewrites many rows changes no table, holds no lock that anybody waits for, reports how far it is, and starts
again when it was interrupted. An upgrade that stops half-way therefore stands at some revision, whole.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, column, inspect, select, table, text

from mutoscope.platform.catalog.database import Database
from mutoscope.platform.errors import CatalogError, SchemaMismatch

HEAD = "0006"
"""The newest revision in `migrations/versions`; kept here so that opening a catalog need not import
Alembic."""

Progress = Callable[[str, int, int], None]
"""Told what is being done, and how many rows of how many are."""


@dataclass(frozen=True, slots=True)
class SchemaStatus:
    """Which revision a database has and which this code needs. `revision` is None without any schema."""

    url: str
    revision: str | None
    expected: str = HEAD

    @property
    def word(self) -> str:
        """``missing``, ``current``, ``behind`` (an upgrade is due) or ``ahead`` (of this Mutoscope)."""
        if self.revision is None:
            return "missing"
        if self.revision == self.expected:
            return "current"
        return "behind" if self.revision < self.expected else "ahead"


_LOCK_TIMEOUT = text("set local lock_timeout = '10s'")

_version = table("alembic_version", column("version_num"))


def current(database: Database) -> str | None:
    """The database's revision; None when it has no schema. Creates nothing."""
    if database.file is not None and not database.file.exists():
        return None
    with database.read() as connection:
        return _revision(connection)


def check(database: Database) -> None:
    """Raise SchemaMismatch unless database and code agree."""
    found = current(database)
    if found == HEAD:
        return
    where = f"the catalog {database.shown_url}"
    if found is None:
        raise SchemaMismatch(f"{where} has no schema: start Mutoscope with `mutoscope up`, which creates it")
    if found > HEAD:
        raise SchemaMismatch(
            f"{where} is at revision {found}, newer than this Mutoscope ({HEAD}): upgrade Mutoscope here"
        )
    raise SchemaMismatch(
        f"{where} is at revision {found}, this Mutoscope needs {HEAD}: back it up, `mutoscope up` or "
        "`mutoscope catalog upgrade` upgrades it"
    )


def check_upgradable(database: Database) -> None:
    """Raise SchemaMismatch when the database is newer than the code."""
    found = current(database)
    if found is not None and found > HEAD:
        check(database)


def migrate(database: Database, progress: Progress | None = None) -> None:
    """Bring the database to `HEAD`, creating it if need be. Safe to call from several processes at once.

    An embedded catalog that is upgraded is copied first, to ``catalog.db.<revision>.bak`` beside it.
    """
    if database.file is not None:
        _make_folder(database.file.parent)
    check_upgradable(database)
    found = current(database)
    if database.is_sqlite:
        database.use_wal()
    if database.file is not None and found is not None and found != HEAD:
        _back_up(database.file, found, progress)
    config = _alembic(progress)
    while _one_step(database, config):
        pass


def _one_step(database: Database, config: Any) -> bool:
    """Apply the next revision; False when there is none."""
    from alembic import command
    from alembic.script import ScriptDirectory
    from alembic.script.revision import RevisionError

    with database.write(at_leisure=True) as connection:
        # A second process waits here, and then finds less to do, or nothing.
        database.serialise(connection, "migrate")
        found = _revision(connection)
        if found == HEAD:
            return False
        if not database.is_sqlite:
            # A change of a table that waits for a long query makes everybody else wait behind it.
            connection.execute(_LOCK_TIMEOUT)
        try:
            following = list(ScriptDirectory.from_config(config).iterate_revisions("head", found or "base"))
        except RevisionError:
            raise SchemaMismatch(
                f"the catalog {database.shown_url} is at revision {found}, which no Mutoscope made: "
                "point MUTOSCOPE_DATABASE_URL at a database of its own"
            ) from None
        config.attributes["connection"] = connection
        command.upgrade(config, following[-1].revision)
    return True


def differences(database: Database) -> list[str]:
    """Where the tables that are there differ from those the code expects; empty when they do not."""
    from alembic.autogenerate import compare_metadata
    from alembic.runtime.migration import MigrationContext

    from mutoscope.platform.catalog.tables import metadata

    with database.read() as connection:
        found = compare_metadata(MigrationContext.configure(connection), metadata)
    return [" ".join(str(difference).split()) for difference in found]


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(select(_version.c.version_num)).scalar_one_or_none()


def _alembic(progress: Progress | None) -> Any:
    from alembic.config import Config

    from mutoscope import migrations

    config = Config()
    config.set_main_option("script_location", str(Path(next(iter(migrations.__path__)))).replace("%", "%%"))
    config.attributes["progress"] = progress
    return config


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CatalogError(
            f"the catalog's folder {folder} cannot be made ({error.strerror}): "
            "set MUTOSCOPE_HOME to a writable folder"
        ) from None


def _back_up(file: Path, revision: str, progress: Progress | None) -> None:
    """Copy the database as it is, once per revision. A half-written copy is under another name."""
    backup = file.with_name(f"{file.name}.{revision}.bak")
    if backup.exists():
        return
    growing = backup.with_suffix(".tmp")

    def report(status: int, remaining: int, total: int) -> None:
        if progress is not None:
            progress(f"backup to {backup.name}", total - remaining, total)

    source, target = sqlite3.connect(file), sqlite3.connect(growing)
    try:
        source.backup(target, pages=4096, progress=report)
    except sqlite3.Error as error:
        raise CatalogError(
            f"the catalog cannot be copied to {backup} before it is upgraded ({error}): make room there"
        ) from None
    finally:
        source.close()
        target.close()
    growing.replace(backup)
