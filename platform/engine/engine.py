"""The engine: runs the programs of resident instances, interleaving the steps of many requests.

One thread steps it; a step is one work plan of one request, or the plans of several whose rows share a call.
All that changes while a request runs is its own job, so the order in which requests are served cannot change
what they return: interleaved equals serial, bit for bit. The same independence isolates failures and makes
any step boundary a place to stop.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any

import torch

from mutoscope.platform.engine.admission import Admission, Gate, Source, Waiting, current, uses
from mutoscope.platform.engine.execution import detach
from mutoscope.platform.engine.job import Job, NodeCache
from mutoscope.platform.engine.memory import Ledger, MemoryModel
from mutoscope.platform.engine.ranks import Ranks
from mutoscope.platform.engine.request import Progress, Request, Result
from mutoscope.platform.engine.scheduler import FairQueue
from mutoscope.platform.engine.stepping import Stepper
from mutoscope.platform.engine.ticket import Ticket
from mutoscope.platform.engine.trace import Trace
from mutoscope.platform.engine.validation import checked_request
from mutoscope.platform.errors import GroupLost, RunCancelled


class Engine:
    """Requests in, results out. Holds no models: instances are handed in with each request.

    Args:
        node_cache: keeps what nodes filled by content; see `ComponentNode.content`.
        budget: bytes of the device's memory that weights and requests may take together; None: without end,
            and nothing is measured.
        make_room: called when a request begins, with the bytes that those at work may take besides weights;
            lets weights go that nobody uses if they are in the way.
        trace: writes down what ran when.
        clock: seconds; what steps are measured by.
        ranks: processes that compute along.

    Attributes:
        memory: what is promised of the budget.
    """

    def __init__(
        self,
        *,
        node_cache: NodeCache | None = None,
        budget: int | None = None,
        make_room: Callable[[int], object] | None = None,
        trace: Trace | None = None,
        clock: Callable[[], float] = time.perf_counter,
        ranks: Ranks | None = None,
    ) -> None:
        self.node_cache = node_cache
        self.memory = Ledger(budget)
        self._make_room = make_room
        self._clock = clock
        self._trace = trace
        self._gate = Gate()
        self._queue: FairQueue[Job] = FairQueue()
        self._groups: Counter[str] = Counter()
        self._model = MemoryModel()
        self._ranks = ranks
        self._stepper = Stepper(self._queue, self.memory, self._model, trace, clock, ranks)
        self._admission = Admission(
            self.memory, self._model, self._gate, self._groups.__getitem__, self._queue.ahead
        )
        self._cancelled: deque[Ticket] = deque()
        self._open: dict[int, Waiting | Job] = {}
        self._admit_again = False

    def __len__(self) -> int:
        """Requests that are not done."""
        return len(self._open)

    @property
    def waiting(self) -> int:
        """Requests that have not begun: their memory is not free yet, or their weights are frozen."""
        return len(self._admission.waiting)

    def learnt(self, card: str) -> dict[str, Any] | None:
        """What requests of a card were seen to take in memory; None before one went through all its steps."""
        return self._model.learnt(card)

    def teach(self, card: str, learnt: Mapping[str, Any]) -> None:
        """Take up what `learnt` told an earlier process of this code on this device.

        Raises:
            KeyError, TypeError, ValueError: it did not tell that.
        """
        self._model.teach(card, learnt)

    def submit(
        self,
        source: Source,
        request: Request,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Ticket:
        """Queue a request. No work is done until `step`.

        Args:
            source: the instance to run on, or a callable that gives it when the request begins. From its
                first step to its last a request runs on one instance.
            on_progress: called after each of the request's steps, in the stepping thread; what it raises
                fails the request.

        Raises:
            InvalidParameter: the request cannot be served, or never fits the device.
            RunFailed: the instance's weights were replaced since.
        """
        instance = current(source)
        instance.require_current()
        request = checked_request(instance.card, instance.recipe, request)
        instance.program.check(request)
        self._admission.need(instance, request)
        total = instance.program.total({"request": request, **request.inputs})
        first = Progress(request.id, instance.program.nodes[0].name, 0, total)
        ticket = Ticket(request.id, first, self._cancelled.append)
        entry = Waiting(source, request, ticket, on_progress, self._clock())
        self._admission.add(entry)
        self._open[id(ticket)] = entry
        self._admit_again = True
        return ticket

    def step(self) -> bool:
        """Drop cancelled requests, let waiting ones begin, then run the work plan of the request whose turn
        it is, with those that may share its call.

        Returns:
            Whether there was anything to run. An exception raised by a step ends that request alone and is
            kept on its ticket.
        """
        self._drop_cancelled()
        if self._admit_again:
            self._admit()
        lead = self._queue.next()
        if lead is None:
            return False
        with torch.inference_mode():
            for job, outcome in self._stepper.step(lead):
                self._end(job, outcome)
        return True

    def run(
        self,
        source: Source,
        request: Request,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Result:
        """Serve one request to its end, giving the others their turns on the way."""
        ticket = self.submit(source, request, on_progress)
        while not ticket.done:
            if not self.step() and not ticket.done:
                raise RuntimeError(f"request {request.id} waits for a part that is frozen: resume it")
        return ticket.result()

    def freeze(self, part: Any) -> None:
        """Let no request begin that uses `part`: a source, an instance or one of its components. Those that
        have begun go on. Freezing nests."""
        self._gate.freeze(part)

    def resume(self, part: Any) -> None:
        """Undo one `freeze`."""
        self._gate.resume(part)
        self._admit_again = True

    def in_flight(self, part: Any) -> int:
        """How many requests that use `part` have begun and are not done."""
        return sum(uses(part, job.source, job.instance) for job in self._queue)

    def _admit(self) -> None:
        """Let requests begin as long as they may."""
        self._admit_again = False
        while (entry := self._admission.next(idle=not len(self._queue))) is not None:
            self._admission.remove(entry)
            try:
                self._begin(entry)
            except GroupLost:
                raise  # no fault of this request
            except Exception as error:
                # What held at submission no longer does: its weights are gone, or it was measured since.
                self._close(entry.ticket, error)

    def _begin(self, entry: Waiting) -> None:
        instance, request = current(entry.source), entry.request
        instance.require_current()
        need = self._admission.need(instance, request)
        job = Job(
            instance, request, entry.ticket, entry.on_progress, self.node_cache, self._clock, entry.source
        )
        if self._ranks is not None:
            self._ranks.begin(job)
        if self._make_room is not None and self.memory.budget is not None:
            self._make_room(self.memory.demand(need))
        self.memory.reserve(job, instance.components, need)
        self._queue.add(job, request.group, request.priority)
        self._groups[request.group] += 1
        self._open[id(entry.ticket)] = job
        if self._trace is not None:
            self._trace.begun(request, entry.since, self._clock())

    def _end(self, job: Job, outcome: Result | Exception) -> None:
        self._queue.remove(job)
        if self._ranks is not None:
            self._ranks.end(job)
        self.memory.release(job, job.instance.components)
        self._groups[job.request.group] -= 1
        if not self._groups[job.request.group]:
            del self._groups[job.request.group]
        if not isinstance(outcome, Exception):
            self._model.complete(job.instance.card.id)
        self._close(job.ticket, outcome)
        self._admit_again = True

    def _close(self, ticket: Ticket, outcome: Result | Exception) -> None:
        del self._open[id(ticket)]
        ticket.resolve(outcome)
        if isinstance(outcome, Exception):
            detach(outcome)
        if self._trace is not None:
            self._trace.ended(ticket.request_id, self._clock(), outcome)

    def _drop_cancelled(self) -> None:
        while self._cancelled:
            ticket = self._cancelled.popleft()
            entry = self._open.get(id(ticket))
            if entry is None or entry.ticket is not ticket:
                continue
            at = ticket.progress
            error = RunCancelled(f"run {at.request_id} was cancelled at step {at.step} of {at.total}")
            if isinstance(entry, Job):
                self._end(entry, error)
            else:
                self._admission.remove(entry)
                self._close(ticket, error)
