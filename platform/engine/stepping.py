"""One step of the engine: the plan whose turn it is, others that may share its call, and the bill."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from mutoscope.platform.engine.cost import CostModel, bounded
from mutoscope.platform.engine.execution import Outcome, execute, may_share
from mutoscope.platform.engine.footprint import held_bytes, watching, weights_bytes
from mutoscope.platform.engine.job import Job
from mutoscope.platform.engine.loop import ComponentNode, LoopNode, WorkPlan
from mutoscope.platform.engine.memory import Ledger, MemoryModel
from mutoscope.platform.engine.ranks import Ranks
from mutoscope.platform.engine.request import Result
from mutoscope.platform.engine.scheduler import FairQueue
from mutoscope.platform.engine.trace import Part, Trace

Ended = list[tuple[Job, Result | Exception]]
"""Requests that a step brought to an end."""


@dataclass(frozen=True, slots=True)
class _Call:
    """Plans that are run together, each with its job.

    Attributes:
        rows: rows of all plans; 0 for a step without rows.
    """

    jobs: Sequence[Job]
    plans: Sequence[WorkPlan]
    rows: int
    cost: float

    @classmethod
    def of(cls, jobs: Sequence[Job], plans: Sequence[WorkPlan]) -> _Call:
        rows = sum(plan.rows.count for plan in plans if plan.rows is not None)
        return cls(jobs, plans, rows, sum(plan.cost for plan in plans))

    @property
    def signature(self) -> tuple[str, str, tuple[Any, ...], int, float]:
        """What the cost model goes by."""
        first = self.plans[0]
        return self.jobs[0].instance.card.id, first.kind, first.shape, self.rows, self.cost

    def share(self, plan: WorkPlan) -> float:
        """A plan's part of the call."""
        return 1.0 if plan.rows is None else plan.rows.count / self.rows


class Stepper:
    """Runs steps of the requests in a queue, which it charges."""

    def __init__(
        self,
        queue: FairQueue[Job],
        ledger: Ledger,
        model: MemoryModel,
        trace: Trace | None,
        clock: Callable[[], float],
        ranks: Ranks | None = None,
    ) -> None:
        self._queue = queue
        self._ledger = ledger
        self._model = model
        self._trace = trace
        self._clock = clock
        self._ranks = ranks
        self._costs = CostModel()

    def step(self, lead: Job) -> Ended:
        """Run the next plan of `lead`; who ended by it."""
        ended: Ended = []
        try:
            filled = lead.recall()
        except Exception as error:
            return [(lead, error)]
        if filled is not None:
            return self._skip(lead, filled)
        plan = self._plan(lead, ended)
        if plan is None:
            return ended
        if not self._is_measured(lead, plan):
            return self._serve(_Call.of([lead], [plan]), measure=True)
        jobs, plans = self._gather(lead, plan, ended)
        return ended + self._serve(_Call.of(jobs, plans))

    def _plan(self, job: Job, ended: Ended) -> WorkPlan | None:
        """A job's next plan; None, and the job ends, if its program cannot make one."""
        try:
            return job.plan()
        except Exception as error:
            ended.append((job, error))
            return None

    def _gather(self, lead: Job, plan: WorkPlan, ended: Ended) -> tuple[list[Job], list[WorkPlan]]:
        """The lead's plan and those of others, in about their turn, that may share a call with it."""
        jobs, plans = [lead], [plan]
        if plan.rows is None:
            return jobs, plans
        free = lead.instance.batcher.capacity(plan) - plan.rows.count
        room = self._ledger.room - self._peak(lead, plan)
        if free < 1:
            return jobs, plans
        for job in self._queue.order():
            if job is lead or job.instance.batcher is not lead.instance.batcher:
                continue
            other = self._plan(job, ended)
            if other is None or other.rows is None or not may_share(plan, other):
                continue
            if other.rows.count <= free and self._peak(job, other) <= room:
                jobs.append(job)
                plans.append(other)
                free -= other.rows.count
                room -= self._peak(job, other)
                if not free:
                    break
        return jobs, plans

    def _serve(self, call: _Call, *, measure: bool = False) -> Ended:
        """Run a call, charge it and tell whom it concerns."""
        estimate = self._costs.estimate(*call.signature)
        self._charge(call, estimate)
        nodes = [job.node for job in call.jobs]
        started = self._clock()
        errors = self._measure(call) if measure else self._run(call)
        seconds = self._clock() - started
        self._learn(call, estimate, seconds)
        if self._trace is not None:
            self._write_down(call, nodes, started, seconds)
        ended: Ended = []
        for job, plan, node, error in zip(call.jobs, call.plans, nodes, errors, strict=True):
            outcome = _report(job, node, seconds * call.share(plan)) if error is None else error
            if outcome is not None:
                ended.append((job, outcome))
        return ended

    def _run(self, call: _Call) -> list[Exception | None]:
        """Run the plans and book their outcomes; the exception of each that failed."""
        instance = call.jobs[0].instance
        if self._ranks is not None:
            self._ranks.call(call.jobs)
        outcomes = execute(call.plans, instance.batcher, partial(free_unused, instance.device))
        errors = [book(job, outcome) for job, outcome in zip(call.jobs, outcomes, strict=True)]
        instance.synchronize()
        return errors if self._ranks is None else self._ranks.agree(errors)

    def _measure(self, call: _Call) -> list[Exception | None]:
        """As `_run`, of a single plan, whose memory is measured."""
        job, plan = call.jobs[0], call.plans[0]
        card, weights = job.instance.card.id, weights_bytes(job.instance.components)
        step = job.at_step
        with watching(job.instance.device) as peak:
            errors = self._run(call)
        if errors == [None]:
            held = held_bytes(*job.held)
            self._model.observe(card, plan.kind, job.extent, step, peak=peak.bytes, held=held)
            for other in self._queue:
                if other.instance.card.id == card:
                    self._ledger.adjust(other, self._model.need(card, other.extent, weights))
        return errors

    def _charge(self, call: _Call, seconds: float) -> None:
        """Book the call's time, to each job its share and what its transitions took."""
        for job, plan in zip(call.jobs, call.plans, strict=True):
            self._queue.charge(job, seconds * call.share(plan) + job.bill())

    def _learn(self, call: _Call, charged: float, seconds: float) -> None:
        """Correct what was charged by what was measured, and the estimates with it."""
        self._costs.observe(*call.signature, seconds)
        self._charge(call, bounded(seconds, self._costs.estimate(*call.signature)) - charged)

    def _skip(self, job: Job, filled: Mapping[str, Any]) -> Ended:
        """What a node fills is known: that costs nothing, but is a step."""
        node = job.node
        job.leave(filled)
        if self._ranks is not None:
            self._ranks.recall(job, filled)
        if self._trace is not None:
            self._trace.recalled(job.request, node.name, self._clock())
        outcome = _report(job, node, 0.0)
        return [] if outcome is None else [(job, outcome)]

    def _is_measured(self, job: Job, plan: WorkPlan) -> bool:
        """Whether the memory that such a step takes is known, or does not matter."""
        if self._ledger.budget is None:
            return True
        return self._model.knows(job.instance.card.id, plan.kind, job.extent, job.at_step)

    def _peak(self, job: Job, plan: WorkPlan) -> int:
        return self._model.peak(job.instance.card.id, plan.kind, job.extent)

    def _write_down(
        self, call: _Call, nodes: Sequence[ComponentNode | LoopNode], started: float, seconds: float
    ) -> None:
        assert self._trace is not None
        plan, instance = call.plans[0], call.jobs[0].instance
        padding = 0 if plan.rows is None else instance.batcher.padding(plan, call.rows)
        parts = [
            Part(job.request, node.name, job.ticket.progress, plan.rows.count if plan.rows else 0)
            for job, node, plan in zip(call.jobs, nodes, call.plans, strict=True)
        ]
        self._trace.call(instance.card.id, plan.kind, parts, padding, started, seconds)


def book(job: Job, outcome: Outcome) -> Exception | None:
    """Book an outcome; why it cannot be, if it cannot."""
    if isinstance(outcome, Exception):
        return outcome
    try:
        job.apply(outcome)
    except Exception as error:
        return error
    return None


def _report(job: Job, node: ComponentNode | LoopNode, seconds: float) -> Result | Exception | None:
    """Count a step; what the request ended with, if it did."""
    try:
        job.report(node, seconds)
        return job.result() if job.finished else None
    except Exception as error:
        return error


def free_unused(device: torch.device) -> None:
    """Give back what dropped tensors held, before a call is tried again in less memory. They are gone by
    now: nothing refers to a failed call, so there is no need to look for cycles, which takes long."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
