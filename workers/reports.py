"""What is told of a run at its end, and told again while nobody listens.

Every run ends in exactly one report. A catalog or a store that does not answer must not cost what was
computed: the report waits, the heartbeat keeps the lease as soon as it can, and unless another worker has
taken the run meanwhile the report is made in the end. A report of which only the answer was lost is found to
be made already.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from mutoscope.platform.catalog import Catalog, RunRecord
from mutoscope.platform.errors import CatalogUnavailable, LeaseLost, StoreUnavailable

RETRY_S = 1.0
"""Seconds between two attempts to report, or to claim, while nobody answers."""

AWAY = (CatalogUnavailable, StoreUnavailable)
"""Says nothing about the run: what was tried may be tried again."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Report:
    run: RunRecord
    make: Callable[[], None]
    settled: Callable[[], None]


class Reports:
    """The reports that are not made yet. Used by the worker's main thread."""

    def __init__(
        self, catalog: Catalog, worker_id: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._catalog = catalog
        self._worker_id = worker_id
        self._clock = clock
        self._open: list[_Report] = []
        self._again_at = 0.0

    def __len__(self) -> int:
        return len(self._open)

    def add(self, run: RunRecord, make: Callable[[], None], settled: Callable[[], None]) -> None:
        """Report now, or later if nobody answers.

        Args:
            settled: called once, when it need not be tried again.
        """
        self._try(_Report(run, make, settled))

    def retry(self, *, at_once: bool = False) -> None:
        """Try again those that are due."""
        if self._open and (at_once or self._clock() >= self._again_at):
            reports, self._open = self._open, []
            for report in reports:
                self._try(report)

    def give_up(self) -> None:
        """Leave the rest to their leases: whoever claims the runs next computes them again."""
        for report in self._open:
            log.error("not reported, left to its lease: run=%s", report.run.id)
            report.settled()
        self._open.clear()

    def _try(self, report: _Report) -> None:
        try:
            report.make()
        except AWAY as error:
            log.warning("not reported, trying again in %.0f s: run=%s: %s", RETRY_S, report.run.id, error)
            self._open.append(report)
            self._again_at = self._clock() + RETRY_S
            return
        except LeaseLost as error:
            self._explain(report.run, error)
        except Exception:
            log.exception("not reported, left to its lease: run=%s", report.run.id)
        report.settled()

    def _explain(self, run: RunRecord, error: LeaseLost) -> None:
        """Whether a report that is refused was made by an earlier attempt, whose answer was lost."""
        try:
            now = self._catalog.runs.get(run.id)
        except CatalogUnavailable:
            now = run
        if now.finished and now.worker == self._worker_id and now.attempt == run.attempt:
            log.info("reported already run=%s state=%s", run.id, now.state)
        else:
            log.warning("discarded run=%s: %s", run.id, error)
