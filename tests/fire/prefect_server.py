"""The Prefect server of a site: a service like others, on a database of the site's Postgres."""

from __future__ import annotations

from collections.abc import Mapping

from mutoscope.platform.cli import services
from mutoscope.platform.cli.supervisor import Service


def prefect_service(port: int, database: str, environment: Mapping[str, str]) -> Service:
    """The server, listening on `port`.

    Args:
        database: SQLAlchemy URL of an empty or earlier database, as psycopg spells it.
    """
    driver = database.replace("postgresql+psycopg://", "postgresql+asyncpg://")
    own = {
        **environment,
        # The server asks nobody: its own address is no link's.
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_API_DATABASE_CONNECTION_URL": driver,
    }
    return services.prefect_server("127.0.0.1", port, own)
