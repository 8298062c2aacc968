"""When a worker looks at the queue.

Looking costs a query; asking whether anything was committed at all costs a few microseconds
(`catalog.watch`). So an idle worker asks every `interval` and looks only after a commit, which keeps the
median wait of a queued run at half that interval and an idle worker under one per cent of a core. Once a
second it looks anyhow: a lease that runs out commits nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from mutoscope.platform.catalog.watch import Watch

ASKS_PER_POLL = 2
"""Asking is so much cheaper than looking that it is done more often than `Settings.poll_seconds` says."""

UNPROMPTED_S = 1.0
"""Seconds after which the queue is looked at without a sign that it changed."""


class Lookout:
    """Decides; the worker looks.

    Attributes:
        interval: seconds between two questions; an idle worker sleeps that long.
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

    def at_once(self) -> None:
        """There is room for a run that may have been waiting: look at the next opportunity."""
        self._not_before = self._at_latest = 0.0

    def not_for(self, seconds: float) -> None:
        """The catalog does not answer: leave it alone for a while, then look."""
        self._not_before = self._at_latest = self._clock() + seconds
