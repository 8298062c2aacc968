"""Step reports to the catalog, throttled: nobody sees a hundred a second, and each is a transaction.

A report also brings news back. A run that is followed anyway learns within one interval, rather than at the
next heartbeat, that somebody wants it cancelled or that its lease is gone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from mutoscope.platform.catalog import Catalog, Standing
from mutoscope.platform.engine.request import Progress

INTERVAL_S = 0.1
"""Seconds between two reports of one run. Its end is told with its outputs, in one transaction: a run that is
over sooner reports nothing before."""

log = logging.getLogger(__name__)


class ProgressReports:
    """Callbacks for the engine, one per run; all write through one catalog."""

    def __init__(
        self, catalog: Catalog, worker_id: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._catalog = catalog
        self._worker_id = worker_id
        self._clock = clock

    def of(
        self, run_id: str, *, on_cancel: Callable[[], None], on_lost: Callable[[], None]
    ) -> Callable[[Progress], None]:
        """The progress callback of one run."""
        last = self._clock()

        def report(progress: Progress) -> None:
            nonlocal last
            at = self._clock()
            if at - last < INTERVAL_S or progress.step == progress.total:
                return
            last = at
            standing = self._write(run_id, progress)
            if standing == "cancel":
                on_cancel()
            elif standing == "lost":
                on_lost()

        return report

    def _write(self, run_id: str, progress: Progress) -> Standing:
        # Progress is for the eye: a catalog that is away for a moment must not fail a run that computes well.
        try:
            return self._catalog.runs.progress(
                run_id, self._worker_id, progress.stage, progress.step, progress.total
            )
        except Exception:
            log.warning("progress of run=%s not written", run_id, exc_info=True)
            return "kept"
