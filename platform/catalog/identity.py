"""Telling catalogs apart: what a store that several of them share knows each by.

A drawn id alone would not do. A copied database has it too, and from then on the two record different things
in the same store; so where the database lies is part of its identity.
"""

from __future__ import annotations

from sqlalchemy import Connection, insert, select, text
from sqlalchemy.exc import DBAPIError

from mutoscope.platform import ids
from mutoscope.platform.catalog.clock import now
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.tables import identity

_DOMAIN = "mutoscope.catalog-identity/1"


def identity_of(database: Database) -> str:
    """32 hex digits. Draws the id at the first call."""
    with database.glance() as connection:
        drawn = connection.execute(select(identity.c.id)).scalar_one_or_none()
    if drawn is None:
        with database.write() as connection:
            database.serialise(connection, "identity")
            drawn = connection.execute(select(identity.c.id)).scalar_one_or_none()
            if drawn is None:
                drawn = ids.new_id()
                connection.execute(insert(identity).values(id=drawn, created_at=now()))
    return ids.digest(_DOMAIN, [drawn, _place(database)])[:32]


def _place(database: Database) -> str:
    if database.file is not None:
        return str(database.file.resolve())
    try:
        with database.glance() as connection:
            return _postgres_place(connection)
    except DBAPIError:
        return ""  # not every server lets everybody ask for its identifier


def _postgres_place(connection: Connection) -> str:
    query = text("select system_identifier::text || '/' || current_database() from pg_control_system()")
    return str(connection.execute(query).scalar_one())
