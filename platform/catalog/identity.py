"""Telling catalogs apart, and the one store that belongs to each.

A store that several catalogs share knows each by its identity. A drawn id alone would not do: a copied
database has it too, and from then on the two record different things in the same store. So where the database
lies is part of its identity.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, insert, select, text, update
from sqlalchemy.exc import DBAPIError

from mutoscope.platform import ids
from mutoscope.platform.catalog.clock import now
from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.tables import identity

_DOMAIN = "mutoscope.catalog-identity/1"


@dataclass(frozen=True, slots=True)
class BoundStore:
    """The store that holds a catalog's bytes. `url` is where it was when the two met; it may have moved."""

    id: str
    url: str


def bound_store(database: Database) -> BoundStore | None:
    """The catalog's store; None before it has met one."""
    with database.glance() as connection:
        row = connection.execute(select(identity.c.store_id, identity.c.store_url)).one_or_none()
    return None if row is None or row[0] is None else BoundStore(row[0], row[1] or "")


def bind_store(database: Database, store: BoundStore) -> BoundStore:
    """Keep `store` for the catalog's; of two that are offered at once the first one is kept. Returns what is
    kept."""
    identity_of(database)
    with database.write() as connection:
        connection.execute(
            update(identity)
            .where(identity.c.store_id.is_(None))
            .values(store_id=store.id, store_url=store.url)
        )
    return bound_store(database) or store


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
