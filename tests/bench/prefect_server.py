"""A Prefect server of its own for a benchmark."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mutoscope.platform.cli.api import answers
from mutoscope.platform.cli.services import free_port
from tests.support.deadline import until

QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_LOGGING_LEVEL": "ERROR",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_ENABLED": "0",
}
"""For the server and for whoever talks to it: nothing leaves the machine, and no hidden second server."""


@dataclass(frozen=True, slots=True)
class PrefectServer:
    """A running server; `url` is its API's."""

    url: str
    pid: int


@contextmanager
def prefect_server(
    folder: Path, environment: Mapping[str, str], database: str = ""
) -> Iterator[PrefectServer]:
    """Start one with its files in `folder`, and end it.

    Args:
        database: URL of an empty Postgres database; SQLite in `folder` by default.
    """
    port = free_port("127.0.0.1", 0)
    url = f"http://127.0.0.1:{port}/api"
    driver = database.replace("postgresql+psycopg://", "postgresql+asyncpg://")
    its = {"PREFECT_HOME": str(folder / "prefect"), "PREFECT_API_URL": url}
    if driver:
        its["PREFECT_API_DATABASE_CONNECTION_URL"] = driver
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "prefect-server.log").open("wb") as log:
        command = [sys.executable, "-m", "prefect", "server", "start", "--port", str(port)]
        process = subprocess.Popen(
            command, env={**environment, **QUIET, **its}, stdout=log, stderr=log, cwd=folder
        )
    try:
        until(lambda: answers(f"{url}/health"), "the Prefect server", seconds=300)
        yield PrefectServer(url, process.pid)
    finally:
        process.terminate()
        process.wait()
