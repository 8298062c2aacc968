"""Who executes a workflow run: its lease is kept by a thread, and the word to stop comes back with it.

The row of a workflow run belongs to one process for as long as that process renews its lease. A thread does,
for all executions of the process, on connections of its own: an event loop that is busy, or a step that
blocks it, must not look like a death. Each renewal brings news:

    cancelled     somebody asked for it, on whatever host
    lost          the lease ran out, and another process has taken the run over
    unreachable   there is no news: the catalog has not answered for longer than it is waited for

and the execution is stopped in its event loop. What it started inside itself is stopped with it, as any
cancelled task stops what it waits for; so only the outermost of several is told.

A catalog that does not answer is asked again. Should the run have been declared crashed meanwhile, and not
been taken over, it goes on where it is: its process is there after all.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

from prefect.exceptions import TerminationSignal

from mutoscope.platform.orchestration.runtime import Runtime

R = TypeVar("R")

Reason = Literal["cancelled", "lost", "unreachable", "overdue"]
"""Why an execution was stopped; ``overdue``: its time limit has passed."""

MOST_SECONDS = 1.0
"""Between two renewals, at most: how long a cancellation may go unnoticed by the process."""

_log = logging.getLogger("mutoscope.liveness")


def holder() -> str:
    """This process, as rows name it."""
    return f"{socket.gethostname()}:{os.getpid()}"


class Stopped(Exception):  # an outcome, like CancelledError
    """The execution was stopped from outside. `reason` says why."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


class Hold:
    """One execution: the task that does the work, and whether it is to stop. Made in its event loop.

    Args:
        outer: the execution around this one in the same process.
    """

    def __init__(self, run_id: str, outer: Hold | None = None) -> None:
        self.run_id = run_id
        self.outer = outer
        self._loop = asyncio.get_running_loop()
        self._caller = asyncio.current_task()
        self._work: asyncio.Task[Any] | None = None
        self._reason: Reason | None = None
        self._signalled = False

    async def run(self, work: Coroutine[Any, Any, R], *, seconds: float | None = None) -> R:
        """Do the work, in a task of its own.

        Args:
            seconds: time limit.

        Raises:
            Stopped: it was told to stop, and has.
        """
        task: asyncio.Task[R] = asyncio.ensure_future(work)
        self._work = task
        limit = self._loop.call_later(seconds, self.stop, "overdue") if seconds is not None else None
        if self._reason is not None:
            task.cancel()
        try:
            await asyncio.wait({task})
        except BaseException as error:
            self._note(error)
            # Whoever waits for this execution is cut short: so is the work, and its own cleaning up is
            # waited for.
            task.cancel()
            await asyncio.wait({task})
            raise
        finally:
            if limit is not None:
                limit.cancel()
        if self._reason is not None and task.cancelled():
            raise Stopped(self._reason)
        try:
            return task.result()
        except TerminationSignal as error:
            self._note(error)
            raise

    def _note(self, error: BaseException) -> None:
        """A signal that tells the process to end arrives wherever the interpreter is just then."""
        if isinstance(error, TerminationSignal):
            self.outermost._signalled = True

    @property
    def outermost(self) -> Hold:
        """The execution around all others of the process; this one if there is none."""
        return self if self.outer is None else self.outer.outermost

    def stop(self, reason: Reason) -> None:
        """Stop the work unless it is done. In the event loop's thread; the first reason stands."""
        if self._reason is None and (self._work is None or not self._work.done()):
            self._reason = reason
            if self._work is not None:
                self._work.cancel()

    def tell(self, reason: Reason) -> None:
        """Stop the work, from any thread."""
        with contextlib.suppress(RuntimeError):  # its event loop has ended, and the work with it
            self._loop.call_soon_threadsafe(self.stop, reason)

    @property
    def is_ending(self) -> bool:
        """Whether the outermost execution is cut short: its process was told to end, or a program gave it
        up."""
        outermost = self.outermost
        caller = outermost._caller
        return outermost._signalled or (caller is not None and caller.cancelling() > 0)

    @property
    def is_in_line(self) -> bool:
        """Whether the caller is the execution's own task: none of several branches, nor a workflow inside."""
        return self._work is not None and asyncio.current_task() is self._work

    def is_within(self, others: set[str]) -> bool:
        """Whether an execution around this one is among those."""
        outer = self.outer
        return outer is not None and (outer.run_id in others or outer.is_within(others))


class Liveness:
    """The executions of one process, and the thread that keeps their leases while there are any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, tuple[Runtime, Hold]] = {}
        self._thread: threading.Thread | None = None
        self._silent_since: float | None = None

    @contextmanager
    def keeping(self, runtime: Runtime, hold: Hold) -> Iterator[None]:
        """Keep the lease of an execution while the block lasts."""
        with self._lock:
            self._held[hold.run_id] = runtime, hold
            if self._thread is None:
                self._thread = threading.Thread(target=self._beat_on, name="liveness", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._held.pop(hold.run_id, None)

    def beat(self) -> None:
        """Renew every lease once, and pass on what was learnt."""
        with self._lock:
            held = dict(self._held)
        for runtime in {id(runtime): runtime for runtime, _ in held.values()}.values():
            self._renew(runtime, {run_id: hold for run_id, (owner, hold) in held.items() if owner is runtime})

    def _beat_on(self) -> None:
        pause = threading.Event()
        while True:
            with self._lock:
                if not self._held:
                    self._thread = None
                    return
                interval = min(runtime.settings.heartbeat_seconds for runtime, _ in self._held.values())
            pause.wait(min(interval, MOST_SECONDS))
            try:
                self.beat()
                self._silent_since = None
            except Exception as error:  # whatever it is, the next beat may get through
                self._bear_silence(error)

    def _bear_silence(self, error: Exception) -> None:
        if self._silent_since is None:
            self._silent_since = time.monotonic()
            _log.warning("leases of workflow runs not renewed, trying on: %s", error)
        silence = time.monotonic() - self._silent_since
        with self._lock:
            held = list(self._held.values())
        for runtime, hold in held:
            if hold.outer is None and silence > runtime.settings.catalog_patience_seconds:
                hold.tell("unreachable")

    def _renew(self, runtime: Runtime, held: dict[str, Hold]) -> None:
        workflows, lease = runtime.catalog.workflows, runtime.settings.lease_seconds
        told = workflows.renew(held, holder(), lease)
        # One that ended while it was renewed is not lost.
        with self._lock:
            lost = {run_id for run_id in told.lost if run_id in self._held}
        gone: set[str] = set()
        for run_id, hold in held.items():  # an outer execution comes before those inside it
            if run_id not in lost:
                continue
            if hold.is_within(gone) or not workflows.reclaim(run_id, holder(), lease):
                gone.add(run_id)
        stopping = gone | told.cancelled
        for run_id in stopping:
            if not held[run_id].is_within(stopping):
                held[run_id].tell("cancelled" if run_id in told.cancelled else "lost")


LIVENESS = Liveness()
"""The process's."""
