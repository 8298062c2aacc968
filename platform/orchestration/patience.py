"""Riding out a catalog that does not answer: a restart of the database is a pause, not a failure.

Every question that a workflow asks the catalog goes through a `Patience`. Asking again is safe: a commit
whose answer was lost is found by the next try, since equal runs are attached to and rows are closed by id.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from mutoscope.platform.errors import CatalogUnavailable

P = ParamSpec("P")
R = TypeVar("R")

_PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds between tries; the last one repeats."""

_log = logging.getLogger("mutoscope.catalog")


class Patience:
    """How long somebody waits for the catalog, counted from each first failure.

    Args:
        seconds: 0 gives up at once.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def end(self) -> None:
        """From now on a failure is final: nobody waits for the answer any more."""
        self._seconds = 0.0

    async def ask(self, question: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Ask in a thread, and again while the catalog does not answer.

        Raises:
            CatalogUnavailable: it did not answer in time.
        """
        failed_at: float | None = None
        tries = 0
        while True:
            try:
                answer = await asyncio.to_thread(question, *args, **kwargs)
            except CatalogUnavailable as error:
                failed_at = failed_at or time.monotonic()
                if time.monotonic() - failed_at >= self._seconds:
                    raise
                if not tries:
                    _log.warning("waiting up to %g s: %s", self._seconds, error)
            else:
                if tries:
                    _log.info("the catalog answers again")
                return answer
            await asyncio.sleep(_PAUSES[min(tries, len(_PAUSES) - 1)])
            tries += 1
