"""Schema revisions: what the code expects, what a database has, and how one becomes the other.

Opening checks and never upgrades: an upgrade is a decision of whoever runs the stack, and a process that
merely reads must not change the database under an older one.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import column, inspect, select, table

from mutoscope.platform.catalog.database import Database
from mutoscope.platform.errors import CatalogError, SchemaMismatch

HEAD = "0002"
"""The newest revision in `migrations/versions`; kept here so that opening a catalog need not import
Alembic."""

_version = table("alembic_version", column("version_num"))


def current(database: Database) -> str | None:
    """The database's revision; None when it has no schema. Creates nothing."""
    if database.file is not None and not database.file.exists():
        return None
    with database.read() as connection:
        if not inspect(connection).has_table("alembic_version"):
            return None
        return connection.execute(select(_version.c.version_num)).scalar_one_or_none()


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
        f"{where} is at revision {found}, this Mutoscope needs {HEAD}: back it up, `mutoscope up` upgrades it"
    )


def migrate(database: Database) -> None:
    """Bring the database to `HEAD`, creating it if need be. Safe to call from several processes at once."""
    from alembic import command
    from alembic.config import Config

    from mutoscope import migrations

    if database.file is not None:
        try:
            database.file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CatalogError(
                f"the catalog's folder {database.file.parent} cannot be made ({error.strerror}): "
                "set MUTOSCOPE_HOME to a writable folder"
            ) from None
    found = current(database)
    if found is not None and found > HEAD:
        check(database)
    if database.is_sqlite:
        database.use_wal()
    config = Config()
    config.set_main_option("script_location", str(Path(next(iter(migrations.__path__)))).replace("%", "%%"))
    # One transaction around all of it: a second process waits at BEGIN and then finds nothing to do.
    with database.write() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
