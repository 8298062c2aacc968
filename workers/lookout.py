"""When a worker looks at the queue.

Looking costs a query; asking whether anything was committed at all costs a few microseconds
(`catalog.watch`). So a worker with runs asks at most every `interval`, an idle one waits for a commit, and
either looks only then. Once a second it looks anyhow: a lease that runs out commits nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from mutoscope.platform.catalog.watch import Watch

ASKS_PER_POLL = 2
"""Asking is so much cheaper than looking that it is done more often than `Settings.poll_seconds` says."""

IDLE_S = 0.05
"""Longest wait for a commit: so soon an idle worker notices that it is to end."""

UNPROMPTED_S = 1.0
"""Seconds after which the queue is looked at without a sign that it changed."""


class Lookout:
    """Decides; the worker looks.

    Attributes:
        interval: seconds between two questions of a worker that has something else to do.
    """

    def __init__(
        self, watch: Watch, poll_seconds: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._watch = watch
        self.interval = poll_seconds / ASKS_PER_POLL
        self._clock = clock
        self._not_before = 0.0
        self._at_latest = 0.0

    def due(self) -> bool:
        """Whether to look now. Saying yes counts as having looked."""
        now = self._clock()
        if now < self._not_before:
            return False
        # Also while runs are active: a step may be much shorter than a poll interval.
        self._not_before = now + self.interval
        if not self._watch.changed() and now < self._at_latest:
            return False
        self._at_latest = now + UNPROMPTED_S
        return True

    def wait(self) -> None:
        """For a worker with nothing to do: return when there may be a reason to look, or after `IDLE_S`."""
        silent = self._not_before - self._clock()
        if silent > self.interval:  # the catalog is being left alone
            time.sleep(min(silent, IDLE_S))
        elif self._watch.wait(IDLE_S):
            self.at_once()

    def at_once(self) -> None:
        """There is room for a run that may have been waiting: look at the next opportunity."""
        self._not_before = self._at_latest = 0.0

    def not_for(self, seconds: float) -> None:
        """The catalog does not answer: leave it alone for a while, then look."""
        self._not_before = self._at_latest = self._clock() + seconds
