"""The Prefect server as seen from here: a client that says in one line when nobody answers, or not to us."""

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
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL

from mutoscope.platform.errors import AccessRefused, ServerUnavailable

UNAUTHORIZED = 401

_LOOK_SECONDS = 0.2


@asynccontextmanager
async def prefect_client() -> AsyncIterator[PrefectClient]:
    """A client of a server that has just answered.

    Raises:
        ServerUnavailable: nobody answers. AccessRefused: somebody does, but not to these credentials.
    """
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
            if isinstance(error, httpx.HTTPStatusError) and error.response.status_code == UNAUTHORIZED:
                raise AccessRefused(_refused(url)) from None
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ServerUnavailable(
                f"no Prefect server answers at {url} ({reason}): "
                "start it with `mutoscope up`, or set PREFECT_API_URL"
            ) from None
        yield client


def _refused(url: str) -> str:
    said = "does not know these credentials" if PREFECT_API_AUTH_STRING.value() else "asks for credentials"
    return (
        f"the Prefect server at {url} {said}: set MUTOSCOPE_PREFECT_AUTH=user:password as the server has it"
    )


async def wait_for_server(seconds: float = 600.0) -> None:
    """Return as soon as the server answers; what starts beside it has its imports behind it by then.

    Raises:
        ServerUnavailable: it did not answer in time.
        AccessRefused: it answered, and waiting longer will not change what it said.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            async with prefect_client():
                return
        except AccessRefused:
            raise
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
