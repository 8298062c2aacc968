"""What Alembic runs. The caller (`platform.catalog.schema.migrate`) brings the connection and its
transaction.

From a shell, to draft a revision::

    alembic -c migrations/alembic.ini -x url=sqlite:////tmp/draft.db revision --autogenerate -m "what changes"
"""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection

from mutoscope.platform.catalog.database import Database
from mutoscope.platform.catalog.tables import metadata


def _run(connection: Connection) -> None:
    # SQLite cannot alter most things in place; batch mode copies the table, and is a plain ALTER elsewhere.
    context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
    with context.begin_transaction():
        context.run_migrations()


connection = context.config.attributes.get("connection")
if connection is not None:
    _run(connection)
else:
    with Database(context.get_x_argument(as_dictionary=True)["url"]).write(at_leisure=True) as own_connection:
        _run(own_connection)
