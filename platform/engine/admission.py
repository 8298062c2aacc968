"""Who may begin: requests wait here until their weights are open to them and their memory is free.

Requests are let in by group, the one with the fewest at work first, so that no group fills the device with
its queue; within a group in order of arrival. One that does not fit yet is passed over by others that do, but
not for ever: after `PATIENCE` of them nobody else is let in until it fits. One that can never fit is refused,
at once if what it needs is known from measurements, else as soon as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from mutoscope.platform.engine.feasibility import too_large
from mutoscope.platform.engine.footprint import weights_bytes
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.memory import Ledger, MemoryModel, Need
from mutoscope.platform.engine.request import Progress, Request
from mutoscope.platform.engine.ticket import Ticket

PATIENCE = 8
"""Times a request that does not fit is passed over before it is given way to."""

Source = Instance | Callable[[], Instance]
"""What a request is to run on; of a callable, the instance that it gives when the request begins."""


def current(source: Source) -> Instance:
    """The instance a source stands for now."""
    return source if isinstance(source, Instance) else source()


@dataclass(slots=True, eq=False)
class Waiting:
    """A request that has not begun.

    Attributes:
        passed: how many others were let in although this one was due.
        since: when it was submitted, by the engine's clock.
    """

    source: Source
    request: Request
    ticket: Ticket
    on_progress: Callable[[Progress], None] | None
    since: float
    passed: int = 0


class Gate:
    """Parts whose requests may not begin: a weight sync freezes one until those at work on it are done."""

    def __init__(self) -> None:
        self._frozen: dict[int, tuple[Any, int]] = {}

    def freeze(self, part: Any) -> None:
        """Hold back requests that use `part` until it is resumed as often as it was frozen."""
        _, times = self._frozen.get(id(part), (part, 0))
        self._frozen[id(part)] = (part, times + 1)

    def resume(self, part: Any) -> None:
        """Undo one `freeze`. Raises ValueError if it is not frozen."""
        if id(part) not in self._frozen:
            raise ValueError(f"a {type(part).__name__} is resumed that is not frozen")
        _, times = self._frozen.pop(id(part))
        if times > 1:
            self._frozen[id(part)] = (part, times - 1)

    def admits(self, source: Source) -> bool:
        """Whether requests of that source may begin."""
        if not self._frozen:
            return True
        try:
            instance = current(source)
        except Exception:
            return True  # what is wrong with it is told to its request, which begins by asking again
        return not any(uses(part, source, instance) for part, _ in self._frozen.values())


def uses(part: Any, source: Source, instance: Instance) -> bool:
    """Whether requests of a source, served by that instance, use a part: either of them, or a component."""
    return part is source or instance.holds(part)


@dataclass(slots=True)
class Admission:
    """The requests that wait, and the rules by which they begin.

    Attributes:
        at_work: how many requests of a group have begun.
        ahead: how far a group is ahead of the least served, in seconds over weight.
        weighed: bytes of the weights of instances that were asked about.
    """

    ledger: Ledger
    model: MemoryModel
    gate: Gate
    at_work: Callable[[str], int]
    ahead: Callable[[str], float]
    waiting: dict[int, Waiting] = field(default_factory=dict)
    weighed: WeakKeyDictionary[Instance, int] = field(default_factory=WeakKeyDictionary)

    def add(self, entry: Waiting) -> None:
        """Let a request wait behind those that do."""
        self.waiting[id(entry)] = entry

    def remove(self, entry: Waiting) -> None:
        """Forget one."""
        del self.waiting[id(entry)]

    def need(self, instance: Instance, request: Request) -> Need:
        """What a request takes besides weights.

        Raises:
            InvalidParameter: more than the device has, whoever else is served.
        """
        if self.ledger.budget is None:
            return Need(0, 0)
        weights = self._weights_of(instance)
        need = self.model.need(instance.card.id, instance.program.extent(request), weights)
        # Guesses refuse nothing.
        if need.measured and weights + need.total > self.ledger.budget:
            raise too_large(instance, request, self.model, self.ledger.budget)
        return need

    def next(self, idle: bool) -> Waiting | None:
        """The request to begin now, if any may.

        Args:
            idle: nothing is at work. A request that does not fit then never will by waiting, and the estimate
                may be wrong: it is let in.
        """
        passed: list[Waiting] = []
        tried: set[tuple[Instance, float]] = set()
        for entry in self._order():
            if idle or self._fits(entry, tried):
                for other in passed:
                    other.passed += 1
                return entry
            if entry.passed >= PATIENCE:
                return None
            passed.append(entry)
        return None

    def _order(self) -> Iterator[Waiting]:
        """Those that the gate admits, in the order in which they are due; first who was passed over for too
        long."""
        open_to = (entry for entry in self.waiting.values() if self.gate.admits(entry.source))
        if self.ledger.budget is None:
            return open_to
        due = list(open_to)
        starved = [entry for entry in due if entry.passed >= PATIENCE]
        return iter(starved or sorted(due, key=self._turn))

    def _turn(self, entry: Waiting) -> tuple[float, float]:
        """Sorting is stable: what is equal here stays in order of arrival."""
        group = entry.request.group
        if not group:
            return 0.0, 0.0
        return self.at_work(group) / entry.request.priority, self.ahead(group)

    def _fits(self, entry: Waiting, tried: set[tuple[Instance, float]]) -> bool:
        """Whether there is memory for a request now. One that never fits, or whose source is gone, is let
        through to be told so.

        Args:
            tried: what did not fit: of requests alike, one answers for all.
        """
        if self.ledger.budget is None:
            return True
        try:
            instance = current(entry.source)
            kind = (instance, instance.program.extent(entry.request))
            if kind in tried:
                return False
            need = self.need(instance, entry.request)
        except Exception:
            return True
        tried.add(kind)
        return not self.ledger.missing(instance.components, need)

    def _weights_of(self, instance: Instance) -> int:
        """Bytes of an instance's weights, added up once."""
        if instance not in self.weighed:
            self.weighed[instance] = weights_bytes(instance.components)
        return self.weighed[instance]
