"""Step batching: the rows of many steps in one forward call.

A forward pass over 16 rows costs far less than 16 passes over one. Whether a row's result then keeps its bits
is a matter of the kernels, which may sum in another order for another number of rows. What agrees is measured
when a card is loaded (see `calibration`), and a `Batcher` keeps to it:

    off         every row in a call of its own: bit for bit what the model's own pipeline computes
    bitwise     rows share calls whose sizes were found to agree, so a result does not depend on who else was
                served. Steps of a shape that was not calibrated run as in `off`
    tolerance   rows share calls of any size; results repeat up to rounding only, and the contract says so

In bitwise mode a result's bits are those of a call at the least agreeing size, whoever shared it. A call that
has not shared before, such as an adapter's, proves itself when it first does: against its rows one by one.
One that fails goes on alone, which changes no result.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from mutoscope.platform.engine import stable
from mutoscope.platform.engine.loop import Rows, WorkPlan
from mutoscope.platform.engine.proofs import Proofs

Row = Mapping[str, Tensor]
Signature = tuple[str, tuple[Any, ...]]
"""A work plan's kind and shape."""

ALIGNMENT = 64
"""Bytes, a cache line. Memory that torch allocates begins at a multiple."""


class Mode(enum.StrEnum):
    """What batching may do to the bits of a result."""

    OFF = "off"
    BITWISE = "bitwise"
    TOLERANCE = "tolerance"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers of rows for which a call's results agree bit for bit, ascending."""

    agreeing: tuple[int, ...]

    @property
    def least(self) -> int:
        """The size that decides a result's bits; smaller calls are padded to it."""
        return self.agreeing[0]

    @property
    def most(self) -> int:
        """The largest call."""
        return self.agreeing[-1]

    def fitting(self, rows: int) -> int:
        """The smallest agreeing size that holds `rows`, at most `most`, rows."""
        return next(size for size in self.agreeing if size >= rows)


class Batcher:
    """Runs the row-offering work plans of one instance. Used by one thread.

    Args:
        sizes: agreeing sizes by signature, for bitwise mode.
        most: rows of the largest call in tolerance mode.
        share: whether rows share calls at all; without, they have the same bits alone.
        prove: let a call that shares for the first time prove itself.
    """

    def __init__(
        self,
        mode: Mode = Mode.OFF,
        sizes: Mapping[Signature, Sizes] | None = None,
        most: int = 1,
        *,
        share: bool = True,
        prove: bool = True,
    ) -> None:
        self.mode = mode
        self._share, self._prove = share, prove
        self._sizes = dict(sizes or {})
        self._most = most
        self._proofs = Proofs()

    def capacity(self, plan: WorkPlan) -> int:
        """Most rows, the plan's own included, of a call that it may be part of; 1: it shares with nobody."""
        sizes = self._sizes_of(plan)
        if sizes is None or not self._share or self._proofs.refuted(_owner(plan), signature(plan)):
            return 1
        return sizes.most

    def padding(self, plan: WorkPlan, rows: int) -> int:
        """Rows of padding that are computed beside `rows` rows of such plans."""
        sizes = self._sizes_of(plan)
        return 0 if sizes is None else sum(sizes.fitting(n) - n for n in _cuts(rows, sizes.most))

    def run(self, plans: Sequence[WorkPlan]) -> list[Any | Exception]:
        """The plans' results in their order; an exception stands for a plan whose own rows cannot be made or
        combined.

        Several plans must agree in `rows.call`, kind and shape, and hold at most `capacity` rows together.

        Raises:
            Exception: whatever the call raised. None of the plans has a result then; a smaller selection of
                them gives each the same bits.
        """
        first, made = plans[0], [_caught(_rows(plan).make) for plan in plans]
        sound = [rows for rows in made if not isinstance(rows, Exception)]
        results = iter(self.results(first, [row for rows in sound for row in rows]))
        outcomes: list[Any | Exception] = []
        for plan, rows in zip(plans, made, strict=True):
            if isinstance(rows, Exception):
                outcomes.append(rows)
            else:
                own = [next(results) for _ in rows]
                outcomes.append(_caught(partial(_rows(plan).combine, own)))
        return outcomes

    def one_by_one(self) -> Batcher:
        """A batcher that gives the same bits without letting rows share a call."""
        return Batcher(self.mode, self._sizes, share=False)

    def trusting(self) -> Batcher:
        """A batcher that takes every call at its word: what the check of the checks needs."""
        return Batcher(self.mode, self._sizes, self._most, share=self._share, prove=False)

    def results(self, plan: WorkPlan, rows: list[Row]) -> list[Any]:
        """The result of each row of such plans. Raises whatever the call raises."""
        call, sizes = _rows(plan).call, self._sizes_of(plan)
        if sizes is None:
            return [call({name: _aligned(part) for name, part in row.items()}) for row in rows]
        if self.mode is Mode.TOLERANCE:
            return in_calls(call, rows, sizes)
        with stable.padding():
            return self._bitwise(plan, rows, sizes)

    def _bitwise(self, plan: WorkPlan, rows: list[Row], sizes: Sizes) -> list[Any]:
        call, owner, name = _rows(plan).call, _owner(plan), signature(plan)
        each = Sizes((sizes.least,))
        if not self._share or len(rows) < 2 or self._proofs.refuted(owner, name):
            return [one for row in rows for one in in_calls(call, [row], each)]
        shared = in_calls(call, rows, sizes)
        if not self._prove or self._proofs.known(owner, name):
            return shared
        alone = [one for row in rows for one in in_calls(call, [row], each)]
        self._proofs.enter(owner, name, all(map(equal_bits, shared, alone)))
        return alone

    def _sizes_of(self, plan: WorkPlan) -> Sizes | None:
        """Sizes of the calls that the plan may be part of; None where it runs as in mode `off`."""
        if plan.rows is None or self.mode is Mode.OFF:
            return None
        if self.mode is Mode.TOLERANCE:
            return Sizes(tuple(range(1, self._most + 1)))
        return self._sizes.get(signature(plan))


def signature(plan: WorkPlan) -> Signature:
    """What, beside the call itself, plans must have in common to share one."""
    return plan.kind, plan.shape


def in_calls(call: Callable[[Row], Any], rows: Sequence[Row], sizes: Sizes) -> list[Any]:
    """The result of each row, from calls of agreeing sizes, filled up by repeating their first row."""
    results: list[Any] = []
    for count in _cuts(len(rows), sizes.most):
        mine = rows[len(results) : len(results) + count]
        results += _one_call(call, mine, sizes.fitting(count))
    return results


def equal_bits(one: Any, other: Any) -> bool:
    """Whether two results, tensors or tuples of them, are equal bit for bit."""
    left, right = _parts(one), _parts(other)
    return len(left) == len(right) and all(map(_equal_tensors, left, right))


def _one_call(call: Callable[[Row], Any], rows: Sequence[Row], size: int) -> list[Any]:
    if size == 1:
        return [call(laid_out(rows[0]))]
    padded = [*rows, *[rows[0]] * (size - len(rows))]
    result = call({name: torch.cat([row[name].contiguous() for row in padded]) for name in rows[0]})
    return [_cut(result, at) for at in range(len(rows))]


def laid_out(row: Row) -> Row:
    """The row in memory as a call that shares has its rows: whole, and beginning where allocated memory does.

    Kernels go by both. A convolution of channels that lie last is another one, and a matrix product sums in
    another order when its operand begins within a cache line, as a view or an array of NumPy's may.
    """
    return {name: _aligned(part.contiguous()) for name, part in row.items()}


def _aligned(part: Tensor) -> Tensor:
    return part.clone() if part.data_ptr() % ALIGNMENT else part


def _cut(result: Any, at: int) -> Any:
    """A row of a result, in memory of its own: a view would keep the whole batch's alive, and its alignment
    could steer the kernels that read it."""
    if isinstance(result, Tensor):
        return result[at : at + 1].clone()
    return tuple(_cut(part, at) for part in result)


def _cuts(rows: int, most: int) -> list[int]:
    """Row counts of the calls that `rows` rows take."""
    return [min(most, rows - start) for start in range(0, rows, most)]


def _parts(result: Any) -> tuple[Tensor, ...]:
    return (result,) if isinstance(result, Tensor) else tuple(result)


def _equal_tensors(left: Tensor, right: Tensor) -> bool:
    # As integers: 0.0 equals -0.0, and NaN nothing, but bits are bits.
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    return torch.equal(left.contiguous().view(torch.uint8), right.contiguous().view(torch.uint8))


def _rows(plan: WorkPlan) -> Rows:
    if plan.rows is None:
        raise ValueError(f"a step of kind {plan.kind} offers no rows: run it by itself")
    return plan.rows


def _owner(plan: WorkPlan) -> Any:
    """The object whose method is called, or the function."""
    call = _rows(plan).call
    return getattr(call, "__self__", call)


def _caught(make: Callable[[], Any]) -> Any:
    """What `make` returns, or the exception it raises."""
    try:
        return make()
    except Exception as error:
        return error
