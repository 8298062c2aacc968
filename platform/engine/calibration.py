"""Calibration: which numbers of rows of a card's calls agree bit for bit, measured on the machine at hand.

A small request is walked through the program. The rows that its steps offer, of several steps and passes, are
then put through their call again: first to find the leaf modules that change bits with the number of rows
(`leaf_probe`), which are told to fill up (`stable`), then as a whole, in batches of every size with the rows
in different slots and beside different neighbours. Sizes under which each row always gave the same bits
agree; the largest group of agreeing sizes is used. With stable leaves that is usually every size, a single
row included, so nothing is padded and a lone request costs what it did.

What decides bits is recorded in the numeric contract, and so in every memo key: the calls that share, the
size whose bits they have, and which leaves fill up to what. Equal machines find the same, however fast they
are: what is measured is bounded by its amount, never by a clock.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from mutoscope.platform import ids
from mutoscope.platform.engine import stable
from mutoscope.platform.engine.batching import (
    Batcher,
    Mode,
    Row,
    Signature,
    Sizes,
    in_calls,
    laid_out,
    signature,
)
from mutoscope.platform.engine.example import example_request
from mutoscope.platform.engine.execution import is_out_of_memory
from mutoscope.platform.engine.findings import Findings, call_digest
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.leaf_probe import LeafProbe
from mutoscope.platform.engine.loop import WorkPlan
from mutoscope.platform.engine.request import Request
from mutoscope.platform.engine.stable import Unit, leaves
from mutoscope.platform.engine.walk import walk

POOL = 4
"""Rows of a call that are put into batches: enough for each to meet different neighbours."""

SIGNATURES = 8
"""Shapes that are calibrated of each kind of step, in the order in which a request has them. A loop whose
every step has a shape of its own would otherwise be calibrated for ever."""

STEPS = 3

LARGE = 2**26
"""Parameters behind a call from which on only `COARSE` sizes of it are measured: half the work, for at most a
third of padding."""

COARSE = (1, 2, 3, 4, 6, 8, 12, 16)

_LEAVES_DOMAIN = "mutoscope.stable-leaves/1"


@dataclass(frozen=True, slots=True)
class Agreement:
    """What was found out about the steps of one kind and shape."""

    kind: str
    shape: tuple[Any, ...]
    sizes: Sizes


@dataclass(frozen=True, slots=True)
class Calibration:
    """How a card's steps share calls on this machine.

    Attributes:
        mode: what was asked for, or OFF where it cannot be had.
        most: rows of the largest call.
        agreements: steps that may share, in bitwise mode; others run alone.
        leaves: how far leaf modules fill up.
        remark: why steps run alone, where that is not what was asked for.
    """

    mode: Mode
    most: int = 1
    agreements: tuple[Agreement, ...] = ()
    leaves: tuple[Unit, ...] = ()
    remark: str = ""

    def contract(self) -> dict[str, Any]:
        """What of it decides bits, as plain data for the numeric contract.

        How large a call may get is no part: all agreeing sizes give the same.
        """
        if self.mode is not Mode.BITWISE:
            return {"mode": self.mode.value}
        calls = [[each.kind, _plain(each.shape), each.sizes.least] for each in self.agreements]
        return {"mode": self.mode.value, "calls": calls, "leaves": self._leaves_digest()}

    def prepare(self, instance: Instance) -> Instance:
        """The instance with a batcher of its own that keeps to this. Leaf modules are treated in place."""
        if self.mode is Mode.BITWISE:
            stable.treat(instance.components.values(), self.leaves)
        sizes = {(each.kind, each.shape): each.sizes for each in self.agreements}
        return replace(instance, batcher=Batcher(self.mode, sizes, self.most))

    def _leaves_digest(self) -> str:
        parts = [
            [each.kind.name, each.kind.options, each.kind.tensors, each.inner, each.rows]
            for each in self.leaves
        ]
        return ids.digest(_LEAVES_DOMAIN, parts)


OFF = Calibration(Mode.OFF)
"""Every row in a call of its own."""


def calibrate(
    instance: Instance,
    *,
    mode: Mode = Mode.BITWISE,
    most: int = 16,
    request: Request | None = None,
    findings: Findings | None = None,
) -> Calibration:
    """Find out how a card's steps may share calls.

    Args:
        most: rows of the largest call to try.
        request: whose steps are calibrated; the card's example at the recipe's size if None.
        findings: what earlier calibrations found under the same `most`; what this one does is added.

    Raises:
        InvalidInput: the card has no example request, and none is given.
    """
    if mode is not Mode.BITWISE or most < 2:
        return Calibration(mode if most > 1 else Mode.OFF, most)
    known = Findings() if findings is None else findings
    with torch.inference_mode():
        pools = collect(instance, request or example_of(instance, num_inference_steps=STEPS))
        if not pools:
            return Calibration(Mode.OFF, remark="its steps offer no rows")
        probe = LeafProbe(instance.components.values(), most, known.units)
        for pool in pools:
            with probe.listening() as called:
                for row in pool.rows:
                    pool.call(row)
            pool.runs = _owners(instance, called)
        known.add(Findings(units=probe.units))
        return _measure(instance, pools, probe.found(), most, known)


@dataclass(slots=True)
class Pool:
    """Rows of steps that may share, of different steps and passes. `runs`: the components that they run."""

    name: Signature
    call: Callable[[Row], Any]
    rows: list[Row]
    runs: list[Any] = field(default_factory=list)


def example_of(instance: Instance, **wishes: Any) -> Request:
    """The card's example request, with those of the parameters that it has."""
    known = instance.card.parameters.model_fields
    given = {name: value for name, value in wishes.items() if name in known}
    return example_request(instance.card, instance.recipe, **given)


def collect(instance: Instance, request: Request) -> list[Pool]:
    """The rows of a request's steps, by call and signature."""
    pools: dict[tuple[Any, Signature], Pool] = {}

    def run(plan: WorkPlan) -> Any:
        if plan.rows is None:
            return plan.run()
        name = signature(plan)
        key = plan.rows.call, name
        alike = {known for _, known in pools if known[0] == name[0]}
        if key in pools or len(alike | {name}) <= SIGNATURES:
            pools.setdefault(key, Pool(name, plan.rows.call, [])).rows.extend(plan.rows.make())
        return plan.run()

    walk(instance, request, run)
    for pool in pools.values():
        # Of the first and of the last steps: noise levels far apart make rows that differ most.
        chosen = [*pool.rows[: POOL // 2], *pool.rows[POOL // 2 :][-(POOL - POOL // 2) :]]
        pool.rows = [laid_out(row) for row in chosen]
    return list(pools.values())


def _owners(instance: Instance, called: set[int]) -> list[Any]:
    """The components that the leaves belong to."""
    return [part for part in instance.components.values() if not called.isdisjoint(leaves([part]))]


def _measure(
    instance: Instance, pools: Sequence[Pool], units: tuple[Unit, ...], most: int, known: Findings
) -> Calibration:
    stable.treat(instance.components.values(), units)
    found: dict[Signature, frozenset[int]] = {}
    with stable.padding():
        for pool in pools:
            sizes = _known_sizes(pool, most, known)
            found[pool.name] = found.get(pool.name, sizes) & sizes
    agreements = tuple(
        Agreement(kind, shape, Sizes(tuple(sorted(sizes))))
        for (kind, shape), sizes in found.items()
        if len(sizes) > 1
    )
    if not agreements:
        return Calibration(Mode.OFF, remark=f"no two of the sizes 1 to {most} agree bit for bit")
    alone = [kind for (kind, _), sizes in found.items() if len(sizes) < 2]
    remark = f"steps that run alone: {', '.join(alone)}" if alone else ""
    return Calibration(Mode.BITWISE, most, agreements, units, remark)


def _known_sizes(pool: Pool, most: int, known: Findings) -> frozenset[int]:
    """The agreeing sizes of a call, measured unless those of one like it are known."""
    digest = call_digest(pool.call, pool.name, pool.rows[0], pool.runs)
    if digest is None:
        return _agreeing(pool, _sizes_to_try(pool, most))
    if digest not in known.sizes:
        known.sizes[digest] = _agreeing(pool, _sizes_to_try(pool, most))
    return known.sizes[digest]


def _sizes_to_try(pool: Pool, most: int) -> Sequence[int]:
    modules = [part for part in pool.runs if isinstance(part, nn.Module)]
    weights = sum(tensor.numel() for part in modules for tensor in part.parameters())
    every = range(1, most + 1)
    return every if weights < LARGE else sorted({size for size in COARSE if size < most} | {most})


def _agreeing(pool: Pool, sizes: Iterable[int]) -> frozenset[int]:
    """The largest group of sizes under which every row has the same bits, in any slot and company; of those
    that the device has memory for."""
    groups: dict[tuple[str, ...], set[int]] = {}
    for size in sizes:
        try:
            bits = _bits(pool, size)
        except Exception as error:
            if size > 1 and is_out_of_memory(error):
                break
            raise
        if bits is not None:
            groups.setdefault(bits, set()).add(size)
    # Of equally large groups the one that was met first, which has the smallest size.
    largest: set[int] = max(groups.values(), key=len, default=set())
    return frozenset(largest)


def _bits(pool: Pool, size: int) -> tuple[str, ...] | None:
    """A digest of each row's result in batches of `size`; None if it depends on slot or neighbours."""
    count = len(pool.rows)
    seen: list[set[str]] = [set() for _ in range(count)]
    for batch in _batches(count, size):
        results = in_calls(pool.call, [pool.rows[at] for at in batch], Sizes((size,)))
        for at, result in zip(batch, results, strict=True):
            seen[at].add(_digest(result))
    return tuple(one for each in seen for one in each) if all(len(each) == 1 for each in seen) else None


def _batches(count: int, size: int) -> Iterable[list[int]]:
    """Batches of `size` of `count` rows, such that each row is in one, and in two slots if size allows."""
    orders = [list(range(count))]
    if 1 < size < 2 * count:
        orders.append(list(reversed(range(count))))
    for order in orders:
        for start in range(0, count, size):
            yield [order[(start + at) % count] for at in range(size)]


def _digest(result: Any) -> str:
    parts = (result,) if isinstance(result, Tensor) else tuple(result)
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{part.dtype}{tuple(part.shape)}".encode())
        digest.update(part.detach().contiguous().view(torch.uint8).cpu().numpy().tobytes())
    return digest.hexdigest()


def _plain(shape: Any) -> Any:
    """A shape as JSON has it: lists, numbers and text."""
    if isinstance(shape, Sequence) and not isinstance(shape, str):
        return [_plain(part) for part in shape]
    if isinstance(shape, Mapping):
        return {str(name): _plain(value) for name, value in shape.items()}
    return shape if shape is None or isinstance(shape, bool | int | float | str) else str(shape)
