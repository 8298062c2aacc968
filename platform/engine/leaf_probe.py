"""Which leaf modules change a row's bits with its place or the number of rows, asked during real calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from mutoscope.platform.engine.execution import is_out_of_memory
from mutoscope.platform.engine.findings import LeafInput
from mutoscope.platform.engine.stable import LeafKind, Unit, filled_up, leaves, rows_of

SAMPLES, ELEMENTS = 4, 2**16
"""Inputs, and elements of inputs, that each kind of leaf is asked about at least, if it meets as many. Bits
can agree by chance: two ways to compute an exponential differ for few of its arguments."""

ENOUGH = 2**18
"""Elements after which no further input is asked about, however few it were: a large model's one input has
as many as a small one's hundred, and each costs fifty times its forward pass."""

REGISTER = 64
"""A vector register has lanes for this many elements at most, two of them taken together included."""

CONTENTS = 256
"""Inputs that a leaf is asked about whose rows leave part of a register over. Elements in that part take
another path than those of whole registers, and the two agree for most arguments: a sigmoid's for 96 in 100.
The few inputs of an example request let too few elements through it, so further ones are made of them."""

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 16)
"""Batches that a leaf's input is repeated to."""

UNITS = (1, 2, 4, 8, 16, 32)
"""Units of rows that are tried. A leaf that none of them cures stays as it is."""


class LeafProbe:
    """Asks the leaves of some components, when they are called, for the same input at several sizes.

    Args:
        most: rows of the largest call that is to be stable.
        known: units of leaves that need not be asked any more.

    Attributes:
        units: rows that each leaf which was called fills up to, by its kind and input.
    """

    def __init__(
        self, components: Iterable[Any], most: int, known: Mapping[LeafInput, int] = MappingProxyType({})
    ) -> None:
        self._leaves = leaves(components)
        self._kinds = {key: LeafKind.of(leaf) for key, leaf in self._leaves.items()}
        self._sizes = tuple(size for size in SIZES if size <= most)
        self._known = known
        self._asked: Counter[LeafInput] = Counter()
        self._elements: Counter[LeafInput] = Counter()
        self._called: set[int] = set()
        self.units: dict[LeafInput, int] = {}

    @contextmanager
    def listening(self) -> Iterator[set[int]]:
        """Inside, every leaf that is called is asked; their identities are in the set."""
        handles = [
            leaf.register_forward_pre_hook(self._ask, with_kwargs=True) for leaf in self._leaves.values()
        ]
        self._called = set()
        try:
            yield self._called
        finally:
            for handle in handles:
                handle.remove()

    def found(self) -> tuple[Unit, ...]:
        """What is to be filled up, in a stable order."""
        return tuple(
            sorted(Unit(kind, inner, rows) for (kind, inner), rows in self.units.items() if rows > 1)
        )

    def _ask(self, leaf: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        self._called.add(id(leaf))
        if len(args) != 1 or named or not isinstance(args[0], Tensor) or not args[0].dim():
            return
        key = self._kinds[id(leaf)], tuple(args[0].shape[1:])
        if key in self._known:
            self.units[key] = self._known[key]
        elif self._is_asked(key):
            contents = [args[0]] if self._asked[key] else _contents(leaf, args[0])
            self._asked[key] += 1
            self._elements[key] += args[0].numel()
            self.units[key] = max(self.units.get(key, 1), _unit(leaf, contents, self._sizes))

    def _is_asked(self, key: LeafInput) -> bool:
        seen = self._elements[key]
        return seen < ELEMENTS or (self._asked[key] < SAMPLES and seen < ENOUGH)


def _contents(leaf: nn.Module, given: Tensor) -> list[Tensor]:
    """An input and, where rare differences are to be feared, paler ones.

    Not for a leaf with a matrix: sums of another order differ for any input.
    """
    if not given.numel() or not given.is_floating_point() or not given[0].numel() % REGISTER:
        return [given]
    if any(tensor.dim() > 1 for tensor in leaf.parameters()):
        return [given]
    count = max(1, min(CONTENTS, ENOUGH // given.numel()))
    return [given * (1 - number / (2 * count)) for number in range(count)]


def _unit(leaf: nn.Module, contents: Iterable[Tensor], sizes: Iterable[int]) -> int:
    """The smallest unit in which the bits of rows agree; 1 if none is needed, or none helps."""
    asked = [rows_of(type(leaf), given) for given in contents]
    return next((unit for unit in UNITS if all(_agrees(leaf, rows, sizes, unit) for rows in asked)), 1)


def _agrees(leaf: nn.Module, rows: Tensor, sizes: Iterable[int], unit: int) -> bool:
    """Whether repeated rows have the bits of the first ones, at every size."""
    expected: Tensor | None = None
    for size in sizes:
        try:
            made = filled_up(leaf.forward, torch.cat([rows] * size), unit)
        except Exception as error:
            if size > 1 and is_out_of_memory(error):
                return True  # no call of that size will be made
            raise
        if not isinstance(made, Tensor) or len(made) != size * len(rows):
            return True  # no result by rows: nothing to be done
        expected = made[: len(rows)] if expected is None else expected
        if not all(torch.equal(part, expected) for part in made.split(len(rows))):
            return False
    return True
