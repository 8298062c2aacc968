"""A job: one request on its way through its program, and everything the engine holds for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any

from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.loop import (
    WARNINGS,
    WEIGHTS,
    ComponentNode,
    Done,
    LoopNode,
    LoopState,
    WorkPlan,
)
from mutoscope.platform.engine.request import Progress, Request, Result
from mutoscope.platform.engine.ticket import Ticket


class Job:
    """Drives one program, one work plan at a time.

    Dropping the job drops the request's slots and loop state: nothing else refers to them.
    """

    def __init__(
        self, instance: Instance, request: Request, on_progress: Callable[[Progress], None] | None = None
    ) -> None:
        self.instance = instance
        self.request = request
        self._on_progress = on_progress
        self._nodes = instance.program.nodes
        self._at = 0
        self._state: LoopState | None = None
        self._slots: dict[str, Any] = {
            "request": request,
            WEIGHTS: instance.weights,
            **request.inputs,
        }
        self._view: Mapping[str, Any] = MappingProxyType(self._slots)
        self._timings = {node.name: 0.0 for node in self._nodes}
        self._warnings: list[str] = []
        total = instance.program.total(self._view)
        self.ticket = Ticket(request.id, Progress(request.id, self._nodes[0].name, 0, total))

    def step(self) -> float:
        """Run the next work plan and report progress; returns the plan's cost.

        The program's transitions, which launch little or nothing, happen on the way: a loop's `init` before
        its first plan, its `finalize` and the move to the next node right after its last.
        """
        node = self._nodes[self._at]
        with self._timed(node):
            plan = self._plan()
            if plan is None:
                raise RuntimeError(f"{node.name} of {self.request.card} is done before its first step")
            outcome = plan.run()
            self._apply(node, outcome)
            self.instance.synchronize()
        self._report(node)
        return plan.cost

    @property
    def finished(self) -> bool:
        """Whether the program has ended."""
        return self._at == len(self._nodes)

    def result(self) -> Result:
        """Outputs and timings of a finished program."""
        outputs = dict(self.instance.program.outputs(self._view))
        declared = {slot.name for slot in self.instance.card.outputs_under(self.request.profile)}
        if set(outputs) != declared:
            raise RuntimeError(
                f"{self.request.card} fills {sorted(outputs)}, but declares {sorted(declared)}"
            )
        return Result(self.request.id, outputs, dict(self._timings), tuple(self._warnings))

    def _plan(self) -> WorkPlan | None:
        """The current node's next plan; None when its loop has none left."""
        node = self._nodes[self._at]
        if isinstance(node, ComponentNode):
            return WorkPlan(node.kind, node.shape(self._view), partial(node.run, self._view), node.cost)
        if self._state is None:
            self._state = node.loop.init(self._view)
        plan = node.loop.next(self._state)
        return None if isinstance(plan, Done) else plan

    def _apply(self, node: ComponentNode | LoopNode, outcome: Any) -> None:
        """Book a plan's outcome; leave the node if that was its last."""
        if isinstance(node, ComponentNode):
            self._leave(outcome)
            return
        assert self._state is not None
        node.loop.advance(self._state, outcome)
        if isinstance(node.loop.next(self._state), Done):
            self._leave(node.loop.finalize(self._state))

    def _leave(self, filled: Mapping[str, Any]) -> None:
        self._warnings += filled.get(WARNINGS, ())
        self._slots.update({name: value for name, value in filled.items() if name != WARNINGS})
        self._state = None
        self._at += 1

    def _report(self, node: ComponentNode | LoopNode) -> None:
        last = self.ticket.progress
        self.ticket.progress = Progress(last.request_id, node.name, last.step + 1, last.total)
        if self._on_progress is not None:
            self._on_progress(self.ticket.progress)

    @contextmanager
    def _timed(self, node: ComponentNode | LoopNode) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self._timings[node.name] += time.perf_counter() - started
