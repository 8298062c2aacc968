"""The worker of the flow pool: `python -m mutoscope.platform.orchestration.pool`.

It is Prefect's own process worker, started beside the server instead of after it: importing Prefect takes
seconds, which it spends while the server spends its own.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys

# Imported for their cost: the command would import them only after the wait.
import prefect.cli.worker
import prefect.workers.process  # noqa: F401
from prefect.cli import app

from mutoscope.platform.errors import MutoscopeError
from mutoscope.platform.orchestration.deployments import ensure_pool
from mutoscope.platform.orchestration.server import prefect_client, wait_for_server
from mutoscope.platform.orchestration.stack import POOL
from mutoscope.platform.settings import get_settings


async def _pool_when_up() -> None:
    await wait_for_server()
    async with prefect_client() as client:
        await ensure_pool(client)


def main() -> int:
    """Serve until SIGTERM; 0, or an error's exit code."""
    parser = argparse.ArgumentParser(prog="python -m mutoscope.platform.orchestration.pool")
    parser.add_argument(
        "--name",
        default=socket.gethostname(),
        help="the worker's name in the Prefect UI (default: the host's)",
    )
    parser.add_argument(
        "--with-health",
        action="store_true",
        help="answer probes at /health on PREFECT_WORKER_WEBSERVER_PORT (8080)",
    )
    options = parser.parse_args()
    try:
        asyncio.run(_pool_when_up())
    except MutoscopeError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    # The command reads its arguments there and nowhere else.
    sys.argv = ["prefect", "worker", "start", "--pool", POOL, "--type", "process", "--name", options.name]
    sys.argv += ["--limit", str(get_settings().flows_per_host)]
    sys.argv += ["--with-healthcheck"] if options.with_health else []
    app()
    return 0


if __name__ == "__main__":
    sys.exit(main())
