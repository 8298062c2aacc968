"""Leaf modules that give a row the same bits wherever it lies and however many there are.

Where a batch changes the bits of a row, it is mostly in a few leaf modules. A matrix product picks another
kernel for fewer than four rows, which is what the time embedding and the modulation of a diffusion
transformer see of a single sample, and treats the rows left over by its blocking in another way than those of
full blocks. A convolution does so for a single sample, an activation for the elements left over by the width
of the vector registers. Such leaves are told to fill their input up to whole units of rows.
That costs next to nothing, as the large products of a transformer have many rows anyway, and makes the whole
call independent of its batch.

A treated module changes its class, in place, to a subclass of its own: parameters, names and state dict stay
what they are. It fills up inside `padding()` only, and otherwise behaves exactly as before, so a module that
others share is safe to treat.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

_UNITS = "_units_of_rows"

_padding: ContextVar[bool] = ContextVar("padding", default=False)


@contextmanager
def padding() -> Iterator[None]:
    """Inside, treated modules fill their input up."""
    token = _padding.set(True)
    try:
        yield
    finally:
        _padding.reset(token)


@dataclass(frozen=True, slots=True, order=True)
class LeafKind:
    """Leaves that compute alike: one class, one set of options and parameter shapes, whatever the values.

    Kinds, not names: a card's second transformer, and the next version of the first, are covered by what was
    found out with one of them.

    Attributes:
        options: what the class says of itself, such as "in_features=128, out_features=768, bias=True".
        tensors: dtype and shape of each parameter and buffer by name.
    """

    name: str
    options: str
    tensors: tuple[tuple[str, str, tuple[int, ...]], ...]

    @classmethod
    def of(cls, leaf: nn.Module) -> LeafKind:
        """The kind of a module, treated or not."""
        named = [*leaf.named_parameters(recurse=False), *leaf.named_buffers(recurse=False)]
        return cls(
            untreated(type(leaf)).__qualname__,
            leaf.extra_repr(),
            tuple((name, str(tensor.dtype), tuple(tensor.shape)) for name, tensor in named),
        )


@dataclass(frozen=True, slots=True, order=True)
class Unit:
    """Up to multiples of how many rows a kind of leaf fills its input.

    Attributes:
        inner: the input's shape behind its first axis.
        rows: counted by `rows_of`.
    """

    kind: LeafKind
    inner: tuple[int, ...]
    rows: int


def leaves(components: Iterable[Any]) -> dict[int, nn.Module]:
    """Modules without children of the components that are modules, by identity."""
    found = (part for value in components if isinstance(value, nn.Module) for part in value.modules())
    return {id(part): part for part in found if not any(True for _ in part.children())}


def treat(components: Iterable[Any], units: Iterable[Unit]) -> None:
    """Let the leaves of the given kinds fill up. Repeating it changes nothing.

    A module that several cards share is treated for all of them: filling up further than one of them needs
    does not change its bits.
    """
    wanted: dict[LeafKind, dict[tuple[int, ...], int]] = {}
    for unit in units:
        wanted.setdefault(unit.kind, {})[unit.inner] = unit.rows
    for leaf in leaves(components).values():
        mine = wanted.get(LeafKind.of(leaf))
        if mine is not None:
            known: Mapping[tuple[int, ...], int] = leaf.__dict__.get(_UNITS, {})
            merged = {inner: math.lcm(rows, known.get(inner, 1)) for inner, rows in mine.items()}
            leaf.__dict__[_UNITS] = {**known, **merged}
            leaf.__class__ = _treated(untreated(type(leaf)))  # type: ignore[arg-type]  # a class hashes


def restore(components: Iterable[Any]) -> None:
    """Undo `treat`."""
    for leaf in leaves(components).values():
        leaf.__class__ = untreated(type(leaf))
        leaf.__dict__.pop(_UNITS, None)


def untreated(kind: type[nn.Module]) -> type[nn.Module]:
    """The class that a treated module had before; any other class itself."""
    return kind.__mro__[2] if issubclass(kind, _FillsUp) else kind


def rows_of(kind: type[nn.Module], given: Tensor) -> Tensor:
    """An input as rows that are computed independently: vectors for a matrix product, samples otherwise."""
    return given.reshape(-1, given.shape[-1]) if issubclass(kind, nn.Linear) else given


def filled_up(forward: Callable[[Tensor], Tensor], rows: Tensor, unit: int) -> Tensor:
    """What a leaf makes of rows, computed in whole units of them; its first row is repeated."""
    short = -len(rows) % unit
    if not short:
        return forward(rows)
    return forward(torch.cat([rows, rows[:1].expand(short, *rows.shape[1:])]))[: len(rows)]


class _FillsUp(nn.Module):
    """First base of a treated module's class; the second is the class it had."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if not _padding.get() or len(args) != 1 or kwargs or not isinstance(args[0], Tensor):
            return super().forward(*args, **kwargs)
        (given,) = args
        unit = self.__dict__[_UNITS].get(tuple(given.shape[1:]))
        if unit is None:
            return super().forward(given)
        rows = rows_of(type(self), given)
        made = filled_up(super().forward, rows, unit)
        return made if rows is given else made.reshape(*given.shape[:-1], made.shape[-1])


@cache
def _treated(kind: type[nn.Module]) -> type[nn.Module]:
    return type(f"FilledUp{kind.__name__}", (_FillsUp, kind), {"__module__": __name__})
