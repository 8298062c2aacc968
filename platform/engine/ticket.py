"""A ticket: the caller's hold on a submitted request. It outlives the request's state."""

from __future__ import annotations

from collections.abc import Callable

from mutoscope.platform.engine.request import Progress, Result
from mutoscope.platform.errors import RunCancelled


class Ticket:
    """Follow, cancel and collect one request.

    `cancel` may be called from any thread and from the progress callback; everything else belongs to the
    thread that steps the engine.

    Attributes:
        progress: where the request is; `total` is right from the start.
        error: why it ended without a result: RunCancelled, or whatever its step raised.
        cancel_requested: it will end at the next step boundary.
    """

    def __init__(
        self, request_id: str, progress: Progress, on_cancel: Callable[[Ticket], None] | None = None
    ) -> None:
        self.request_id = request_id
        self.progress = progress
        self.error: Exception | None = None
        self.cancel_requested = False
        self._on_cancel = on_cancel
        self._result: Result | None = None

    @property
    def done(self) -> bool:
        """Whether the request has ended, in success or not."""
        return self._result is not None or self.error is not None

    @property
    def cancelled(self) -> bool:
        """Whether the request ended because it was cancelled."""
        return isinstance(self.error, RunCancelled)

    def cancel(self) -> None:
        """Ask the request to end. The engine drops it, and its state, when it is next stepped."""
        self.cancel_requested = True
        if self._on_cancel is not None:
            self._on_cancel(self)

    def result(self) -> Result:
        """The outputs. Raises what ended the request otherwise, and RuntimeError while it is not done."""
        if self.error is not None:
            raise self.error
        if self._result is None:
            at = f"step {self.progress.step} of {self.progress.total}"
            raise RuntimeError(f"request {self.request_id} is at {at}: step the engine until it is done")
        return self._result

    def resolve(self, outcome: Result | Exception) -> None:
        """End the request; the engine calls this once."""
        if isinstance(outcome, Exception):
            self.error = outcome
        else:
            self._result = outcome
