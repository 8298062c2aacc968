"""How a worker is asked to end: SIGTERM or SIGINT once to drain, twice to stop at the next step boundary. An
operator who asks through the catalog drains."""

from __future__ import annotations

import logging
import signal
from types import FrameType

log = logging.getLogger(__name__)


class Shutdown:
    """Counts the requests. What follows from them happens in the main loop, between two steps."""

    def __init__(self) -> None:
        self.requests = 0

    def install(self) -> None:
        """Handle the signals of this process. Main thread only."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def drain(self) -> None:
        """Finish what runs and end, as after one signal."""
        self.requests = max(self.requests, 1)

    @property
    def draining(self) -> bool:
        """No new work; finish what runs."""
        return self.requests >= 1

    @property
    def immediate(self) -> bool:
        """Hand back what runs."""
        return self.requests >= 2

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.requests += 1
