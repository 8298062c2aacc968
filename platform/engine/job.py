"""A job: one request on its way through its program, and everything the engine holds for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol

from mutoscope.platform.engine.finite import JUDGES_ITSELF, broken_weight, require_finite
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
from mutoscope.platform.errors import NonFinite


class NodeCache(Protocol):
    """Keeps what component nodes filled, by content; see `ComponentNode.content`."""

    def get(
        self, instance: Instance, node: ComponentNode, slots: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        """What the node would fill, if that is known."""
        ...

    def put(
        self, instance: Instance, node: ComponentNode, slots: Mapping[str, Any], filled: Mapping[str, Any]
    ) -> None:
        """Remember what the node filled."""
        ...


class Job:
    """Walks one program: tells the next work plan without moving, and moves when its outcome is applied.

    Dropping the job drops the request's slots and loop state: nothing else refers to them.

    Attributes:
        source: what the request was submitted to: the instance, or what gave it.
        unbilled: seconds spent on the program's transitions that no step was charged for yet.
    """

    def __init__(
        self,
        instance: Instance,
        request: Request,
        ticket: Ticket,
        on_progress: Callable[[Progress], None] | None = None,
        cache: NodeCache | None = None,
        clock: Callable[[], float] = time.perf_counter,
        source: Any = None,
    ) -> None:
        self.instance = instance
        self.source = source
        self.request = request
        self.ticket = ticket
        self.unbilled = 0.0
        self.extent = instance.program.extent(request)
        self._on_progress = on_progress
        self._cache = cache
        self._clock = clock
        self._nodes = instance.program.nodes
        self._at = 0
        self._state: LoopState | None = None
        self._next: WorkPlan | None = None
        self._slots: dict[str, Any] = {"request": request, WEIGHTS: instance.weights, **request.inputs}
        self._view: Mapping[str, Any] = MappingProxyType(self._slots)
        self._timings = {node.name: 0.0 for node in self._nodes}
        self._warnings: list[str] = []

    @property
    def node(self) -> ComponentNode | LoopNode:
        """The program node at work."""
        return self._nodes[self._at]

    @property
    def held(self) -> tuple[Mapping[str, Any], LoopState | None]:
        """What the request keeps between two steps."""
        return self._view, self._state

    @property
    def at_step(self) -> int:
        """The step of the node at work that comes next, from 1."""
        return 1 if self._state is None else self._state.step + 1

    @property
    def finished(self) -> bool:
        """Whether the program has ended."""
        return self._at == len(self._nodes)

    def plan(self) -> WorkPlan:
        """The next work plan. Asked again before it is applied, it is the same one.

        A loop's `init`, which launches little or nothing, happens on the way to its first plan.
        """
        if self._next is None:
            started = self._clock()
            self._next = self._make_plan()
            self.unbilled += self._clock() - started
        return self._next

    def recall(self) -> Mapping[str, Any] | None:
        """What the current node would fill, if the cache knows. Asked when the step is due, so that the
        samples of a group find what the first of them computed."""
        node = self.node
        if self._cache is None or isinstance(node, LoopNode) or node.content is None:
            return None
        return self._cache.get(self.instance, node, self._view)

    def apply(self, outcome: Any) -> None:
        """Book the next plan's outcome, and leave the node if that was its last.

        Raises:
            NonFinite: the outcome is not finite; nothing of it is kept.
        """
        node = self.node
        self._require_finite(node, outcome)
        if isinstance(node, ComponentNode):
            if self._cache is not None and node.content is not None:
                self._cache.put(self.instance, node, self._view, outcome)
            self.leave(outcome)
            return
        assert self._state is not None
        node.loop.advance(self._state, outcome)
        following = node.loop.next(self._state)
        if isinstance(following, Done):
            self.leave(node.loop.finalize(self._state))
        else:
            self._next = following

    def leave(self, filled: Mapping[str, Any]) -> None:
        """Go on to the next node."""
        self._warnings += filled.get(WARNINGS, ())
        self._slots.update({name: value for name, value in filled.items() if name != WARNINGS})
        self._state = None
        self._next = None
        self._at += 1

    def report(self, node: ComponentNode | LoopNode, seconds: float) -> None:
        """Count a step of `node` that took `seconds`, and tell whoever follows the request."""
        self._timings[node.name] += seconds
        last = self.ticket.progress
        self.ticket.progress = Progress(last.request_id, node.name, last.step + 1, last.total)
        if self._on_progress is not None:
            self._on_progress(self.ticket.progress)

    def bill(self) -> float:
        """Seconds of transitions since they were last asked for."""
        seconds, self.unbilled = self.unbilled, 0.0
        return seconds

    def result(self) -> Result:
        """Outputs and timings of a finished program."""
        outputs = dict(self.instance.program.outputs(self._view))
        slots = self.instance.card.outputs_under(self.request.profile)
        declared = {slot.name for slot in slots}
        required = {slot.name for slot in slots if slot.required}
        if not required <= set(outputs) <= declared:
            raise RuntimeError(
                f"{self.request.card} fills {sorted(outputs)}, but declares {sorted(declared)}"
            )
        return Result(
            self.request.id,
            outputs,
            dict(self._timings),
            tuple(self._warnings),
            weights=self.instance.weights,
        )

    def _make_plan(self) -> WorkPlan:
        node = self.node
        if isinstance(node, ComponentNode):
            return WorkPlan(node.kind, node.shape(self._view), partial(node.run, self._view), node.cost)
        self._state = node.loop.init(self._view)
        plan = node.loop.next(self._state)
        if isinstance(plan, Done):
            raise RuntimeError(f"{node.name} of {self.request.card} is done before its first step")
        return plan

    def _require_finite(self, node: ComponentNode | LoopNode, outcome: Any) -> None:
        if self._next is not None and self._next.kind in JUDGES_ITSELF:
            return
        at = "" if self._state is None else f" step {self.at_step} of {self._state.total}"
        using = f" ({', '.join(node.uses)})" if node.uses else ""
        try:
            require_finite(outcome, f"{node.name}{at}{using} of {self.request.card}")
        except NonFinite as error:
            raise NonFinite(self._cause() or str(error)) from None

    def _cause(self) -> str | None:
        """The weights that explain a result that is not finite. Looks at all: this request has failed."""
        for name, part in self.instance.components.items():
            broken = broken_weight(part) if hasattr(part, "state_dict") else None
            if broken is not None:
                return (
                    f"{name} of {self.request.card} holds NaN or infinity in {broken}, seen at "
                    f"{self.node.name}: take the component from a sound checkpoint"
                )
        return None
