"""What a step costs: seconds on the device, the one currency of all kinds of steps.

A plan declares a relative cost. What it stands for in seconds is learnt from what was measured: first per
card and kind, as a rate, then for the very shape and number of rows. An estimate is the lower median of the
latest measurements, so the first call's warm-up or a neighbour's burst of load moves nothing by itself, and a
lasting change is followed within a few steps.

Equal measurements give equal estimates. They decide who is served when, never what is returned.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Any

PRIOR_RATE = 0.01
"""Seconds per unit of declared cost before anything of the card's kind was measured."""

_LATEST = 9
"""Measurements a median is taken over."""

_SHAPES = 4096
"""Shapes remembered; those used least recently make way."""

_OUTLIER = 4.0
"""How far from the estimate a single measurement counts, either way."""


class CostModel:
    """Estimates for every card on one device. All times are seconds."""

    def __init__(self) -> None:
        self._rates: dict[Hashable, _Latest] = {}
        self._shapes: OrderedDict[Hashable, _Latest] = OrderedDict()

    def estimate(self, card: str, kind: str, shape: tuple[Any, ...], rows: int, cost: float) -> float:
        """What a call will take.

        Args:
            rows: rows in the call, of all steps that share it; 0 for a step without rows.
            cost: declared cost, of all steps that share the call.
        """
        found = self._shapes.get((card, kind, shape, rows))
        if found is not None:
            return found.median
        rate = self._rates.get((card, kind))
        return cost * (PRIOR_RATE if rate is None else rate.median)

    def observe(
        self, card: str, kind: str, shape: tuple[Any, ...], rows: int, cost: float, seconds: float
    ) -> None:
        """Learn from a call that was measured. A clock that stands still teaches nothing."""
        if seconds <= 0:
            return
        _latest(self._shapes, (card, kind, shape, rows)).add(seconds)
        self._shapes.move_to_end((card, kind, shape, rows))
        if len(self._shapes) > _SHAPES:
            self._shapes.popitem(last=False)
        _latest(self._rates, (card, kind)).add(seconds / cost)


def bounded(seconds: float, estimate: float) -> float:
    """What a measured step is charged: the time it took, unless that is out of all proportion to what such
    steps take. A request is not to pay for the machine's hiccup, nor for being the first of its kind."""
    if seconds <= 0:
        return estimate
    return min(max(seconds, estimate / _OUTLIER), estimate * _OUTLIER)


class _Latest:
    """The latest measurements and their lower median."""

    __slots__ = ("_values", "median")

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=_LATEST)
        self.median = 0.0

    def add(self, value: float) -> None:
        self._values.append(value)
        self.median = sorted(self._values)[(len(self._values) - 1) // 2]


def _latest(known: dict[Hashable, _Latest], key: Hashable) -> _Latest:
    found = known.get(key)
    if found is None:
        found = known[key] = _Latest()
    return found
