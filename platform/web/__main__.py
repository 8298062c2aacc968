"""Serve the gateway: `python -m mutoscope.platform.web --host 127.0.0.1 --port 4280`."""

from __future__ import annotations

import argparse
import sys

import uvicorn

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.custody.tie import tie
from mutoscope.platform.errors import MutoscopeError
from mutoscope.platform.settings import get_settings
from mutoscope.platform.web.app import Gateway


def main() -> int:
    """Serve until SIGTERM or Ctrl-C; 0, or an error's exit code."""
    try:
        settings = get_settings()
        parser = argparse.ArgumentParser(prog="python -m mutoscope.platform.web", description=__doc__)
        parser.add_argument(
            "--host", default=settings.host, help="address to listen on (default: %(default)s)"
        )
        parser.add_argument("--port", type=int, default=settings.web_port, help="default: %(default)s")
        arguments = parser.parse_args()
        catalog, store = Catalog.open(settings.database_url), ArtifactStore.of(settings)
        tie(catalog, store)
    except MutoscopeError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    app = Gateway(catalog, store).app()
    uvicorn.run(app, host=arguments.host, port=arguments.port, log_level="warning", server_header=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
