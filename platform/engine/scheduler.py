"""Who goes next: fair queueing in two levels, by seconds on the device.

Groups share the device by their weights, whatever their number of requests, and the requests of a group share
what the group gets. Each carries a *tag*, the seconds it has been served divided by its weight, and the least
tag goes next; among equals, the one that has waited longest. With equal costs this is round robin.

A newcomer starts at the level that everybody would have reached by now had the service been divided without
steps. So it neither waits for the others to finish nor pushes them aside to catch up on their past; and as
the level rises with every second served, a stream of newcomers keeps nobody waiting. A group that leaves
ahead of the level finds its tag again when it returns: sending one request after another wins no more than
sending them together.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class _Shares:
    """Keys that divide service among themselves by weight.

    Attributes:
        tags: service received over weight. Insertion order is the order of last service, which settles ties.
        level: service received by each unit of weight, had it been divided without steps.
        gone: tags above the level of keys that may return.
    """

    tags: dict[Hashable, float] = field(default_factory=dict)
    weights: dict[Hashable, float] = field(default_factory=dict)
    level: float = 0.0
    gone: dict[Hashable, float] = field(default_factory=dict)

    def join(self, key: Hashable, weight: float) -> None:
        self.tags[key] = max(self.level, self.gone.pop(key, self.level))
        self.weights[key] = weight

    def leave(self, key: Hashable, *, returns: bool) -> None:
        tag = self.tags.pop(key)
        del self.weights[key]
        if returns:
            self.gone[key] = tag
        if not self.tags:
            # Nobody was kept waiting by what is owed to nobody: the next busy period starts level.
            self.level = max(self.level, tag)
            self.gone.clear()
        self.gone = {left: at for left, at in self.gone.items() if at > self.level}

    def charge(self, key: Hashable, seconds: float) -> None:
        self.level += seconds / sum(self.weights.values())
        self.tags[key] = self.tags.pop(key) + seconds / self.weights[key]

    def first(self) -> Hashable:
        return min(self.tags, key=self.tags.__getitem__)

    def order(self) -> list[Hashable]:
        return sorted(self.tags, key=self.tags.__getitem__)


@dataclass(slots=True)
class _Group(Generic[T]):
    """The requests of one group."""

    named: bool
    members: dict[Hashable, T] = field(default_factory=dict)
    shares: _Shares = field(default_factory=_Shares)

    @property
    def weight(self) -> float:
        """That of its weightiest request: more requests are no reason for a larger share."""
        return max(self.shares.weights.values())


class FairQueue(Generic[T]):
    """The requests at work. Items are told apart by identity."""

    def __init__(self) -> None:
        self._groups: dict[Hashable, _Group[T]] = {}
        self._shares = _Shares()
        self._home: dict[int, Hashable] = {}

    def __len__(self) -> int:
        return len(self._home)

    def __iter__(self) -> Iterator[T]:
        return iter([item for group in self._groups.values() for item in group.members.values()])

    def add(self, item: T, group: str = "", weight: float = 1.0) -> None:
        """Let an item join behind those that wait. Without a group it is one of its own."""
        home: Hashable = group or id(item)
        found = self._groups.setdefault(home, _Group(named=bool(group)))
        found.members[id(item)] = item
        found.shares.join(id(item), weight)
        if home not in self._shares.tags:
            self._shares.join(home, found.weight)
        self._shares.weights[home] = found.weight
        self._home[id(item)] = home

    def next(self) -> T | None:
        """The item to serve now; None when nobody waits. It stays in the queue."""
        if not self._groups:
            return None
        group = self._groups[self._shares.first()]
        return group.members[group.shares.first()]

    def order(self) -> Iterator[T]:
        """All items in about the order of their turns: the first of every group, then the second ones."""
        none: Any = object()
        groups = [self._groups[home] for home in self._shares.order()]
        rounds = zip_longest(*([g.members[key] for key in g.shares.order()] for g in groups), fillvalue=none)
        return (item for item in chain.from_iterable(rounds) if item is not none)

    def charge(self, item: T, seconds: float) -> None:
        """Book what serving an item costs; it moves behind its equals. Negative to correct an estimate."""
        home = self._home[id(item)]
        self._groups[home].shares.charge(id(item), seconds)
        self._shares.charge(home, seconds)

    def remove(self, item: T) -> None:
        """Forget an item, and with it the last reference the queue holds to it."""
        home = self._home.pop(id(item))
        group = self._groups[home]
        group.shares.leave(id(item), returns=False)
        del group.members[id(item)]
        if group.members:
            self._shares.weights[home] = group.weight
        else:
            self._shares.leave(home, returns=group.named)
            del self._groups[home]

    def ahead(self, group: str) -> float:
        """How far a group is ahead of its share, in seconds over weight; 0 for one that is unknown."""
        level = self._shares.level
        return max(0.0, self._shares.tags.get(group, self._shares.gone.get(group, level)) - level)
