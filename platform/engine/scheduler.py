"""Who goes next: fair queueing by declared cost.

Each request carries the cost it has been served so far, and the one served least goes next; among equals, the
one that has waited longest. With equal costs this is round robin. A newcomer starts level with the least
served, so it neither waits for the others to finish nor pushes them aside to catch up on their past.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """The requests at work, each with the cost it has been served. Items are told apart by identity."""

    def __init__(self) -> None:
        # Insertion order is the order in which items were last served, which settles ties.
        self._served: dict[int, tuple[T, float]] = {}

    def __len__(self) -> int:
        return len(self._served)

    def __iter__(self) -> Iterator[T]:
        return iter([item for item, _ in self._served.values()])

    def add(self, item: T) -> None:
        """Let an item join behind those that wait."""
        floor = min((served for _, served in self._served.values()), default=0.0)
        self._served[id(item)] = (item, floor)

    def next(self) -> T | None:
        """The item to serve now; None when nobody waits. It stays in the queue."""
        return min(self._served.values(), key=lambda entry: entry[1], default=(None, 0.0))[0]

    def charge(self, item: T, cost: float) -> None:
        """Book what serving an item cost; it moves behind its equals."""
        _, served = self._served.pop(id(item))
        self._served[id(item)] = (item, served + cost)

    def remove(self, item: T) -> None:
        """Forget an item, and with it the last reference the queue holds to it."""
        del self._served[id(item)]
