"""The engine: runs the programs of resident instances, interleaving the steps of many requests.

One thread steps it; a step is one work plan of one request. All that changes while a request runs is its own
job, so the order in which requests are served cannot change what they return: interleaved equals serial, bit
for bit. The same independence isolates failures and makes any step boundary a place to stop.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable

import torch

from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.job import Job
from mutoscope.platform.engine.request import Progress, Request, Result
from mutoscope.platform.engine.scheduler import FairQueue
from mutoscope.platform.engine.ticket import Ticket
from mutoscope.platform.engine.validation import checked_request
from mutoscope.platform.errors import RunCancelled


class Engine:
    """Requests in, results out. Holds no models: instances are handed in with each request."""

    def __init__(self) -> None:
        self._queue: FairQueue[Job] = FairQueue()

    def __len__(self) -> int:
        """Requests that are not done."""
        return len(self._queue)

    def submit(
        self,
        instance: Instance,
        request: Request,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Ticket:
        """Queue a request. No work is done until `step`.

        Args:
            on_progress: called after each of the request's steps, in the stepping thread; what it raises
                fails the request.

        Raises:
            InvalidParameter: the request cannot be served.
        """
        request = checked_request(instance.card, instance.recipe, request)
        instance.program.check(request)
        job = Job(instance, request, on_progress)
        self._queue.add(job)
        return job.ticket

    def step(self) -> bool:
        """Drop cancelled requests, then run one work plan of the request whose turn it is.

        Returns:
            Whether there was anything to run. An exception raised by a step ends that request alone and is
            kept on its ticket.
        """
        self._drop_cancelled()
        job = self._queue.next()
        if job is None:
            return False
        outcome = self._advance(job)
        if outcome is not None:
            self._queue.remove(job)
            job.ticket.resolve(outcome)
            if isinstance(outcome, Exception):
                _detach(outcome)
        return True

    def run(
        self,
        instance: Instance,
        request: Request,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Result:
        """Serve one request to its end, giving the others their turns on the way."""
        ticket = self.submit(instance, request, on_progress)
        while not ticket.done:
            self.step()
        return ticket.result()

    def _advance(self, job: Job) -> Result | Exception | None:
        """One step of a job; what it ended with, if it ended."""
        try:
            with torch.inference_mode():
                self._queue.charge(job, job.step())
                return job.result() if job.finished else None
        except Exception as error:
            return error

    def _drop_cancelled(self) -> None:
        for job in self._queue:
            if job.ticket.cancel_requested:
                self._queue.remove(job)
                at = job.ticket.progress
                job.ticket.resolve(
                    RunCancelled(f"run {at.request_id} was cancelled at step {at.step} of {at.total}")
                )


def _detach(error: BaseException) -> None:
    """Turn an exception's traceback into a note.

    A traceback holds the frames it passed through, and they hold the failed request's tensors, for as long as
    anyone keeps the exception. The note prints the same lines and holds nothing.
    """
    error.add_note("".join(traceback.format_exception(error)).rstrip())
    seen: set[int] = set()
    chain: list[BaseException | None] = [error]
    while chain:
        link = chain.pop()
        if link is not None and id(link) not in seen:
            seen.add(id(link))
            link.__traceback__ = None
            chain += [link.__cause__, link.__context__]
