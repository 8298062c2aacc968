"""Leaf modules that give a row the same bits whatever number of rows they are given.

Where a batch changes the bits of a row, it is mostly in a few leaf modules: a matrix product picks another
kernel for fewer than four rows (the time embedding and the modulation of a diffusion transformer, which see
one row per sample), a convolution for a single sample. Those leaves are told to fill their input up to the
smallest number of rows from which on the bits agree. That costs next to nothing, as the large products of a
transformer have many rows anyway, and makes the whole call independent of its batch.

A treated module changes its class, in place, to a subclass of its own: parameters, names and state dict stay
what they are. It fills up inside `padding()` only, and otherwise behaves exactly as before, so a module that
others share is safe to treat.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

_LEAST = "_least_rows"

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
class LeastRows:
    """How far a kind of leaf fills up its input.

    Attributes:
        inner: the input's shape behind its first axis. rows: length of the first axis from which on a row's
            bits agree.
    """

    kind: LeafKind
    inner: tuple[int, ...]
    rows: int


def leaves(components: Iterable[Any]) -> dict[int, nn.Module]:
    """Modules without children of the components that are modules, by identity."""
    found = (part for value in components if isinstance(value, nn.Module) for part in value.modules())
    return {id(part): part for part in found if not any(True for _ in part.children())}


def treat(components: Iterable[Any], table: Iterable[LeastRows]) -> None:
    """Let the leaves that a table names fill up. Repeating it changes nothing.

    A module that several cards share is treated for all of them: filling up further than one of them needs
    does not change its bits.
    """
    wanted: dict[LeafKind, dict[tuple[int, ...], int]] = {}
    for entry in table:
        wanted.setdefault(entry.kind, {})[entry.inner] = entry.rows
    for leaf in leaves(components).values():
        least = wanted.get(LeafKind.of(leaf))
        if least is not None:
            known: Mapping[tuple[int, ...], int] = leaf.__dict__.get(_LEAST, {})
            merged = {inner: max(rows, known.get(inner, 0)) for inner, rows in least.items()}
            leaf.__dict__[_LEAST] = {**known, **merged}
            leaf.__class__ = _treated(untreated(type(leaf)))


def restore(components: Iterable[Any]) -> None:
    """Undo `treat`."""
    for leaf in leaves(components).values():
        leaf.__class__ = untreated(type(leaf))
        leaf.__dict__.pop(_LEAST, None)


def untreated(kind: type[nn.Module]) -> type[nn.Module]:
    """The class that a treated module had before; any other class itself."""
    return kind.__mro__[2] if issubclass(kind, _FillsUp) else kind


class _FillsUp(nn.Module):
    """First base of a treated module's class; the second is the class it had."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        least = self.__dict__[_LEAST] if _padding.get() else None
        if least is None or len(args) != 1 or kwargs or not isinstance(args[0], Tensor):
            return super().forward(*args, **kwargs)
        (given,) = args
        short = _missing(least, given)
        if not short:
            return super().forward(given)
        filled = torch.cat([given, given[:1].expand(short, *given.shape[1:])])
        return super().forward(filled)[: len(given)]


def _missing(least: Mapping[tuple[int, ...], int], given: Tensor) -> int:
    """Rows by which an input falls short."""
    return max(0, least.get(tuple(given.shape[1:]), 0) - len(given)) if given.dim() else 0


@cache
def _treated(kind: type[nn.Module]) -> type[nn.Module]:
    return type(f"FilledUp{kind.__name__}", (_FillsUp, kind), {"__module__": __name__})
