"""A device's memory as the engine accounts for it: what is promised, and what a request will need.

At any moment the device holds the weights of the instances at work, what every admitted request keeps between
its steps, and the peak of the one call that runs. So the requests' holdings add up and their peaks do not:
the largest counts. A shared call takes no more steps together than their peaks have room for.

How much a request needs is learnt by measuring: the peak by card and kind of step, what is kept by card, each
against the request's extent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from mutoscope.platform.engine.footprint import module_storages

MARGIN = 1.25
"""Estimates are taken this much larger than measured: operators use scratch memory that no one sees."""

FIRST_GUESS = 64 * 2**20
"""Bytes that a step of an unmeasured card is taken to need at least."""

_POINTS = 64
"""Extents remembered per card and kind."""


@dataclass(frozen=True, slots=True)
class Need:
    """What a request takes besides weights, in bytes.

    Attributes:
        held: kept between steps. peak: needed while one of its steps runs, at most.
        measured: it follows from measurements rather than from a guess.
    """

    held: int
    peak: int
    measured: bool = True

    @property
    def total(self) -> int:
        return self.held + self.peak


class Ledger:
    """Reservations on one device.

    Attributes:
        budget: bytes for weights and requests together; None: without end.
        weights: bytes of the modules of instances at work; what they share once.
    """

    def __init__(self, budget: int | None = None) -> None:
        self.budget = budget
        self.weights = 0
        self._modules: dict[int, _Module] = {}
        self._needs: dict[int, Need] = {}

    @property
    def held(self) -> int:
        """Bytes that admitted requests keep between their steps."""
        return sum(need.held for need in self._needs.values())

    @property
    def reserved(self) -> int:
        """Bytes promised in all."""
        return self.weights + self.held + self._largest_peak()

    @property
    def room(self) -> float:
        """Bytes that the peak of one call may take now."""
        return math.inf if self.budget is None else self.budget - self.weights - self.held

    def missing(self, components: Mapping[str, Any], need: Need) -> int:
        """Bytes that lack for a request to be admitted now; 0 if it fits."""
        if self.budget is None:
            return 0
        added = [part for part in modules_of(components) if id(part) not in self._modules]
        weights = self._sum([module_storages(part) for part in added]) if added else self.weights
        return max(0, weights + self.demand(need) - self.budget)

    def demand(self, need: Need) -> int:
        """Bytes that requests take besides weights once one with that need is among them."""
        return self.held + need.held + max(self._largest_peak(), need.peak)

    def reserve(self, holder: object, components: Mapping[str, Any], need: Need) -> None:
        """Promise a request its memory."""
        self._needs[id(holder)] = need
        if self.budget is None:
            return
        for module in modules_of(components):
            known = self._modules.get(id(module))
            if known is None:
                known = self._modules[id(module)] = _Module(module, module_storages(module))
            known.users += 1
        self.weights = self._sum()

    def adjust(self, holder: object, need: Need) -> None:
        """Correct a promise."""
        self._needs[id(holder)] = need

    def release(self, holder: object, components: Mapping[str, Any]) -> None:
        """Take a promise back."""
        del self._needs[id(holder)]
        if self.budget is None:
            return
        for module in modules_of(components):
            known = self._modules[id(module)]
            known.users -= 1
            if not known.users:
                del self._modules[id(module)]
        self.weights = self._sum()

    def _largest_peak(self) -> int:
        return max((need.peak for need in self._needs.values()), default=0)

    def _sum(self, more: Sequence[Mapping[int, int]] = ()) -> int:
        """Bytes under the modules at work and under `more`."""
        united: dict[int, int] = {}
        for storages in (*(module.storages for module in self._modules.values()), *more):
            united.update(storages)
        return sum(united.values())


@dataclass(slots=True)
class _Module:
    """A module at work. It is held on to, so that its identity cannot pass to another."""

    module: nn.Module
    storages: Mapping[int, int]
    users: int = 0


def modules_of(components: Mapping[str, Any]) -> list[nn.Module]:
    """The modules among components, each once."""
    return list({id(part): part for part in components.values() if isinstance(part, nn.Module)}.values())


class MemoryModel:
    """What requests need, by card and extent, learnt from what was measured."""

    def __init__(self) -> None:
        self._peaks: dict[str, dict[str, _Growth]] = {}
        self._held: dict[str, _Growth] = {}
        self._complete: set[str] = set()

    def learnt(self, card: str) -> dict[str, Any] | None:
        """What is known of a card as plain data, for a later process; None before its steps were all seen."""
        if card not in self._complete or card not in self._held:
            return None
        peaks = {kind: growth.to_dict() for kind, growth in self._peaks[card].items()}
        return {"peaks": peaks, "held": self._held[card].to_dict()}

    def teach(self, card: str, learnt: Mapping[str, Any]) -> None:
        """Take up what an earlier process learnt. Raises KeyError, TypeError or ValueError for anything
        else."""
        peaks = {str(kind): _Growth.from_dict(growth) for kind, growth in learnt["peaks"].items()}
        held = _Growth.from_dict(learnt["held"])
        self._peaks[card], self._held[card] = peaks, held
        self._complete.add(card)

    def complete(self, card: str) -> None:
        """Note that a request of the card has gone through all its steps: from now on its kinds are known."""
        self._complete.add(card)

    def need(self, card: str, extent: float, weights: int) -> Need:
        """What a request of that extent will take.

        Args:
            weights: bytes of the instance's weights. Of a card that was never measured they are the guess:
                one sample's activations are rarely larger than the model.
        """
        peak = max((growth.at(extent) for growth in self._peaks.get(card, {}).values()), default=0.0)
        held = self._held[card].at(extent) if card in self._held else 0.0
        found = Need(int(held * MARGIN), int(peak * MARGIN))
        if card in self._complete:
            return found
        guess = max(FIRST_GUESS, weights)
        return Need(max(found.held, guess // 8), max(found.peak, guess), measured=False)

    def knows(self, card: str, kind: str, extent: float, step: int) -> bool:
        """Whether that kind of step was measured at that extent. What a loop keeps may grow with its steps,
        counted from 1, so each doubling of their number is measured again."""
        growth = self._peaks.get(card, {}).get(kind)
        return growth is not None and step < 2 * growth.steps.get(extent, 0)

    def peak(self, card: str, kind: str, extent: float) -> int:
        """Bytes that a step of a measured kind takes at its peak; 0 if it was not measured."""
        growth = self._peaks.get(card, {}).get(kind)
        return 0 if growth is None else int(growth.at(extent) * MARGIN)

    def observe(self, card: str, kind: str, extent: float, step: int = 1, *, peak: int, held: int) -> None:
        """Learn from a step that ran alone: its peak, and what its request kept after it."""
        growth = self._peaks.setdefault(card, {}).setdefault(kind, _Growth())
        growth.add(extent, peak)
        growth.steps[extent] = max(step, growth.steps.get(extent, 0))
        self._held.setdefault(card, _Growth()).add(extent, held)


@dataclass(slots=True)
class _Growth:
    """Bytes against extent: the most that was seen at each extent."""

    points: dict[float, int] = field(default_factory=dict)
    steps: dict[float, int] = field(default_factory=dict)
    """At each extent, the latest step of a loop that was measured."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"points": sorted(self.points.items()), "steps": sorted(self.steps.items())}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> _Growth:
        """Raises KeyError, TypeError or ValueError for what is none."""
        points = {float(extent): int(size) for extent, size in stored["points"]}
        if not points or min(points.values()) < 0:
            raise ValueError("no bytes are known at any extent")
        return cls(points, {float(extent): int(step) for extent, step in stored["steps"]})

    def add(self, extent: float, size: int) -> None:
        self.points[extent] = max(size, self.points.get(extent, 0))
        if len(self.points) > _POINTS:
            # The ends carry the extrapolation; of those between, one is as good as another.
            middle = sorted(self.points)[_POINTS // 2]
            del self.points[middle]
            self.steps.pop(middle, None)

    def at(self, extent: float) -> float:
        """Never less than what a smaller extent took. Beyond the largest, a straight line through both ends,
        or through zero as long as there is only one."""
        largest = max(self.points)
        if extent <= largest:
            return max(size for at, size in self.points.items() if at <= self._ceiling(extent))
        least, most = min(self.points), self.points[largest]
        if least == largest:
            return most * extent / largest
        slope = (most - self.points[least]) / (largest - least)
        return most + max(0.0, slope) * (extent - largest)

    def _ceiling(self, extent: float) -> float:
        """The smallest extent that was seen and is no smaller."""
        return min(at for at in self.points if at >= extent)
