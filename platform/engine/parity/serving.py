"""Requests served one by one, interleaved and batched, for what they return to be compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice, permutations
from typing import Any

from mutoscope.platform.engine.batching import Batcher
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.loop import WorkPlan
from mutoscope.platform.engine.parity.content import content
from mutoscope.platform.engine.request import Request

Served = dict[str, dict[str, bytes]]
"""What requests returned, by request id. One that failed has its error as the only content."""


class Watched(Batcher):
    """A batcher seen at work.

    Attributes:
        shared: calls that several steps shared. largest: most rows in one of them.
    """

    def __init__(self, inner: Batcher) -> None:
        super().__init__(inner.mode)
        self._inner = inner
        self.shared = self.largest = 0

    def capacity(self, plan: WorkPlan) -> int:
        return self._inner.capacity(plan)

    def padding(self, plan: WorkPlan, rows: int) -> int:
        return self._inner.padding(plan, rows)

    def run(self, plans: Sequence[WorkPlan]) -> list[Any | Exception]:
        if len(plans) > 1:
            self.shared += 1
            self.largest = max(self.largest, sum(plan.rows.count for plan in plans if plan.rows))
        return self._inner.run(plans)

    def one_by_one(self) -> Batcher:
        return self._inner.one_by_one()


def standstill() -> float:
    """A clock without time. Steps are then charged what they declare, so that the same requests take the same
    turns on any machine: a defect that one order of turns shows, always shows."""
    return 0.0


def unshared(instance: Instance) -> Instance:
    """The instance with the same bits, no two rows in a call."""
    return replace(instance, batcher=instance.batcher.one_by_one())


def serial(instance: Instance, requests: Iterable[Request]) -> Served:
    """Each request on an engine of its own, and no two rows in a call."""
    alone = unshared(instance)
    return {request.id: together(alone, [request])[request.id] for request in requests}


def together(instance: Instance, requests: Sequence[Request], stagger: int = 0) -> Served:
    """All requests on one engine; `stagger` steps pass between arrivals.

    A defective loop may never end: after twice the steps that all requests announce, they are cancelled.
    """
    engine, tickets = Engine(clock=standstill), []
    for request in requests:
        tickets.append(engine.submit(instance, request))
        for _ in range(stagger):
            engine.step()
    patience = 2 * sum(ticket.progress.total for ticket in tickets)
    while engine.step():
        patience -= 1
        if not patience:
            for ticket in tickets:
                ticket.cancel()
    return {
        ticket.request_id: {"error": repr(ticket.error).encode()}
        if ticket.error is not None
        else content(ticket.result())
        for ticket in tickets
    }


def orders(requests: Sequence[Request], most: int) -> list[tuple[Request, ...]]:
    """Up to `most` orders of arrival: the given one, its reverse, and then others."""
    given = tuple(requests)
    names = [[request.id for request in order] for order in (given, given[::-1])]
    others = (order for order in permutations(given) if [r.id for r in order] not in names)
    return [given, *([given[::-1]] if len(given) > 1 else []), *islice(others, most)][:most]
