"""Which leaf modules change a row's bits with the number of rows, found by asking them during real calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from mutoscope.platform.engine.stable import LeafKind, LeastRows, leaves

SAMPLES = 4
"""Inputs that each kind of leaf is asked about; for a single one, bits can agree by chance."""

WORTHWHILE = 8
"""Largest multiple of its input to which a leaf is filled up. One that needs more is not cured: its work
would grow by more than a batch saves."""


class LeafProbe:
    """Asks the leaves of some components, when they are called, for the same input at several sizes.

    Args:
        most: rows of the largest call that is to be stable.
    """

    def __init__(self, components: Iterable[Any], most: int) -> None:
        self._leaves = leaves(components)
        self._kinds = {key: LeafKind.of(leaf) for key, leaf in self._leaves.items()}
        self._sizes = (*range(1, min(WORTHWHILE, most) + 1), *range(2 * WORTHWHILE, most + 1, WORTHWHILE))
        self._asked: Counter[tuple[LeafKind, tuple[int, ...]]] = Counter()
        self._least: dict[tuple[LeafKind, tuple[int, ...]], int] = {}

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Inside, every leaf that is called is asked."""
        handles = [leaf.register_forward_pre_hook(self._ask) for leaf in self._leaves.values()]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def found(self) -> tuple[LeastRows, ...]:
        """What is to be filled up, in a stable order."""
        return tuple(
            sorted(LeastRows(kind, inner, rows) for (kind, inner), rows in self._least.items() if rows)
        )

    def _ask(self, leaf: nn.Module, args: tuple[Any, ...]) -> None:
        if len(args) != 1 or not isinstance(args[0], Tensor) or not args[0].dim():
            return
        key = self._kinds[id(leaf)], tuple(args[0].shape[1:])
        if self._asked[key] < SAMPLES:
            self._asked[key] += 1
            self._least[key] = max(self._least.get(key, 0), self._least_rows(leaf, args[0]))

    def _least_rows(self, leaf: nn.Module, given: Tensor) -> int:
        """Rows from which on the bits agree; 0 if they always do, or if that would take too many."""
        made = [(size, leaf.forward(torch.cat([given] * size))) for size in self._sizes]
        if not all(isinstance(each, Tensor) and len(each) == size * len(given) for size, each in made):
            return 0  # no result by rows
        largest = made[-1][1][: len(given)]
        least = made[-1][0]
        for size, each in reversed(made):
            if not torch.equal(each[: len(given)], largest):
                break
            least = size
        return least * len(given) if 1 < least <= WORTHWHILE // 2 else 0
