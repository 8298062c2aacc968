"""The reconciler: `python -m mutoscope.platform.orchestration.reconciler`, once per installation or more.

It looks again and again at what the catalog and Prefect believe (see `reconciling`) and mends what a dead
process left behind, so that nobody has to. It holds nothing itself: it may be killed at any moment, and any
number of them may run on any hosts. A catalog or a Prefect server that does not answer is tried again; the
log says once that it went and once that it came back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import httpx
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from mutoscope.platform.errors import CatalogUnavailable, MutoscopeError, ServerUnavailable
from mutoscope.platform.orchestration.pages import RUN_PAGES
from mutoscope.platform.orchestration.reconciling import Look
from mutoscope.platform.orchestration.runtime import Runtime, get_runtime
from mutoscope.platform.orchestration.server import prefect_client

if TYPE_CHECKING:
    from prefect.client.orchestration import PrefectClient

LOOK_SECONDS = 1.0
"""Between two looks at leases."""

FLOW_RUNS_SECONDS = 5.0
"""Between two looks at Prefect's open flow runs."""

_log = logging.getLogger("mutoscope.reconciler")


class Reconciler:
    """Looks until told to stop.

    Attributes:
        stopping: set it to end `serve`.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.stopping = asyncio.Event()
        self._runtime = runtime
        self._client: PrefectClient | None = None
        self._connection = AsyncExitStack()
        self._silent: set[str] = set()
        # Whoever lives has renewed its lease by then, even if the catalog was away until a moment ago.
        self._patience = 2 * runtime.settings.heartbeat_seconds
        self._trusts_leases_at = time.monotonic() + self._patience
        self._looks_at_flow_runs_at = 0.0

    async def serve(self) -> None:
        """Look once a second until `stopping` is set."""
        async with self._connection:
            while not self.stopping.is_set():
                await self.look()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.stopping.wait(), LOOK_SECONDS)

    async def look(self) -> list[str]:
        """Look once; never raises for what does not answer. Returns a line for each thing it changed."""
        await self._connect()
        look = Look(self._runtime, self._client)
        try:
            await look.at_running()
            if time.monotonic() >= self._trusts_leases_at:
                await look.at_expired()
            if time.monotonic() >= self._looks_at_flow_runs_at:
                await look.at_flow_runs()
                self._looks_at_flow_runs_at = time.monotonic() + FLOW_RUNS_SECONDS
        except CatalogUnavailable as error:
            self._went("the catalog", error)
            self._trusts_leases_at = time.monotonic() + self._patience
        except httpx.HTTPError as error:
            await self._disconnect(error)
        except Exception:
            # One record that cannot be mended must not keep the others from it.
            _log.exception("a look failed")
        else:
            self._came("the catalog")
        return look.changed

    async def _connect(self) -> None:
        if self._client is not None or not PREFECT_API_URL.value():
            return
        try:
            self._client = await self._connection.enter_async_context(prefect_client())
        except ServerUnavailable as error:
            self._went("the Prefect server", error)
        else:
            self._came("the Prefect server")

    async def _disconnect(self, error: Exception) -> None:
        self._went("the Prefect server", error)
        self._client = None
        with contextlib.suppress(httpx.HTTPError, RuntimeError):
            await self._connection.aclose()

    def _went(self, who: str, error: Exception) -> None:
        if who not in self._silent:
            self._silent.add(who)
            _log.warning(
                "%s does not answer, trying on: %s", who, " ".join(str(error).split()) or repr(error)
            )

    def _came(self, who: str) -> None:
        if who in self._silent:
            self._silent.discard(who)
            _log.info("%s answers again", who)


async def reconcile(runtime: Runtime) -> list[str]:
    """One look at everything, for whoever does not want to wait for the service. Returns what was changed.

    Raises:
        CatalogUnavailable, ServerUnavailable: nothing can be compared.
    """
    async with prefect_client() as client:
        look = Look(runtime, client)
        await look.at_running()
        await look.at_expired()
        await look.at_flow_runs()
    return look.changed


async def _serve() -> None:
    reconciler = Reconciler(get_runtime())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, reconciler.stopping.set)
    _log.info("ready")
    await reconciler.serve()


def main() -> int:
    """Serve until SIGTERM; 0, or an error's exit code."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("mutoscope").setLevel(logging.INFO)
    # Its own rounds are its tries: a server that is away must not hold up what needs none.
    with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}):
        try:
            asyncio.run(_serve())
        except MutoscopeError as error:
            print(f"error: {error}", file=sys.stderr)
            return error.exit_code
    RUN_PAGES.drain()
    return 0


if __name__ == "__main__":
    sys.exit(main())
