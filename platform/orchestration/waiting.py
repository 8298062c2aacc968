"""Waiting for a run in an event loop: the thread that looks for all says when there is something to see."""

from __future__ import annotations

import asyncio
import contextlib

from mutoscope.platform.catalog import Catalog, RunRecord
from mutoscope.platform.catalog.ends import Seen
from mutoscope.platform.orchestration.context import observer
from mutoscope.platform.refs import ArtifactRef


async def end_of(catalog: Catalog, run: RunRecord) -> tuple[RunRecord, dict[str, ArtifactRef]]:
    """The run once it has ended, and its outputs if it succeeded; the observer around sees it on the way.

    A catalog that does not answer meanwhile ends no wait.

    Raises:
        UnknownReference: the run is not in the catalog any more.
    """
    loop, watch, shown = asyncio.get_running_loop(), observer.get(), run
    ended: asyncio.Future[Seen | None] = loop.create_future()

    def take(seen: Seen | None) -> None:
        nonlocal shown
        if ended.done():
            return
        if watch is not None and seen is not None and seen.run != shown:
            watch(seen.run)
            shown = seen.run
        if seen is None or seen.run.finished:
            ended.set_result(seen)

    def tell(seen: Seen | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(take, seen)

    ticket = catalog.ends.follow(run.id, tell)
    try:
        # It may have ended before it was followed.
        await asyncio.to_thread(catalog.ends.look, ticket)
        seen = await ended
    finally:
        catalog.ends.leave(ticket)
    return seen if seen is not None else (catalog.runs.get(run.id), {})
