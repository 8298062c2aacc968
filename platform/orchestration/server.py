"""The Prefect server as seen from here: a client that says in one line when nobody answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from prefect.client.orchestration import PrefectClient, get_client
from prefect.logging.handlers import PrefectConsoleHandler
from prefect.settings import PREFECT_API_URL

from mutoscope.platform.errors import ServerUnavailable

_LOOK_SECONDS = 0.2


@asynccontextmanager
async def prefect_client() -> AsyncIterator[PrefectClient]:
    """A client of a server that has just answered. Raises ServerUnavailable."""
    url = PREFECT_API_URL.value()
    if not url:
        raise ServerUnavailable(
            "no Prefect server is configured: start one with `mutoscope up`, or set PREFECT_API_URL"
        )
    async with contextlib.AsyncExitStack() as stack:
        try:
            client = await stack.enter_async_context(get_client())
            (await client.hello()).raise_for_status()
        except (httpx.HTTPError, RuntimeError, OSError) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ServerUnavailable(
                f"no Prefect server answers at {url} ({reason}): "
                "start it with `mutoscope up`, or set PREFECT_API_URL"
            ) from None
        yield client


async def wait_for_server(seconds: float = 600.0) -> None:
    """Return as soon as the server answers; what starts beside it has its imports behind it by then.

    Raises:
        ServerUnavailable: it did not answer in time.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            async with prefect_client():
                return
        except ServerUnavailable:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(_LOOK_SECONDS)


def quiet_console() -> None:
    """Keep Prefect's log lines off this process's terminal; the server still receives them."""
    for name in ("root", "prefect", "prefect.flow_runs", "prefect.task_runs"):
        for handler in logging.getLogger(name).handlers:
            if isinstance(handler, PrefectConsoleHandler):
                handler.setLevel(logging.CRITICAL)
