"""Defects planted in a card, one for each gate: a gate that does not notice its own is not worth having.

Planted instances share the original's modules and leave it as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.loop import Done, Loop, LoopNode, Rows, WorkPlan

NUDGE = 1e-2
"""Relative size of a planted change."""


class _Planted:
    """A loop that passes everything on to the one it stands for."""

    def __init__(self, loop: Loop[Any]) -> None:
        self.loop = loop

    @property
    def name(self) -> str:
        return self.loop.name

    def init(self, slots: Mapping[str, Any]) -> Any:
        return self.loop.init(slots)

    def next(self, state: Any) -> WorkPlan | Done:
        return self.loop.next(state)

    def advance(self, state: Any, result: Any) -> None:
        self.loop.advance(state, result)

    def finalize(self, state: Any) -> Mapping[str, Any]:
        return self.loop.finalize(state)


class SharedState(_Planted):
    """Keeps the state of the last request on itself: the global that breaks interleaving."""

    def init(self, slots: Mapping[str, Any]) -> Any:
        self.state = self.loop.init(slots)
        return self.state

    def next(self, state: Any) -> WorkPlan | Done:
        return self.loop.next(self.state)

    def advance(self, state: Any, result: Any) -> None:
        self.loop.advance(self.state, result)

    def finalize(self, state: Any) -> Mapping[str, Any]:
        return self.loop.finalize(self.state)


class RemembersRollouts(_Planted):
    """Once a request was captured, all are changed: capture that is not off when it is off."""

    captured = False

    def init(self, slots: Mapping[str, Any]) -> Any:
        state = self.loop.init(slots)
        self.captured |= state.capture is not None
        return state

    def advance(self, state: Any, result: Any) -> None:
        self.loop.advance(state, nudged(result, _turned_over) if self.captured else result)


class GlobalGenerator(_Planted):
    """Adds noise from the process's own generator: a draw that no seed decides."""

    def advance(self, state: Any, result: Any) -> None:
        self.loop.advance(state, nudged(result, torch.randn_like))


class BatchDependent(_Planted):
    """Gives a row another result in another slot of the call: an operation that is not per row."""

    def next(self, state: Any) -> WorkPlan | Done:
        plan = self.loop.next(state)
        if isinstance(plan, Done) or plan.rows is None:
            return plan
        rows = Rows(_BySlot(plan.rows.call), plan.rows.count, plan.rows.make, plan.rows.combine)
        return WorkPlan.of_rows(plan.kind, plan.shape, rows, plan.cost)


@dataclass(frozen=True)
class _BySlot:
    call: Callable[[Mapping[str, Any]], Any]

    def __call__(self, rows: Mapping[str, Any]) -> Any:
        return nudged(self.call(rows), _turned)


def _turned(x: Tensor) -> Tensor:
    """Each row turned round as many times over as its slot says; the first row is left alone."""
    slots = torch.arange(len(x), device=x.device, dtype=x.dtype)
    return slots.reshape(-1, *[1] * (x.dim() - 1)) * x.flip(-1) / NUDGE


def _turned_over(x: Tensor) -> Tensor:
    return x.flip(-1) / NUDGE


def nudged(result: Any, by: Callable[[Tensor], Tensor]) -> Any:
    """A step's result with every floating tensor moved a little along `by` of it."""
    if isinstance(result, Tensor):
        return result + NUDGE * by(result) if result.is_floating_point() else result
    if isinstance(result, tuple | list):
        return type(result)(nudged(part, by) for part in result)
    if isinstance(result, Mapping):
        return {name: nudged(part, by) for name, part in result.items()}
    return result


def planted(instance: Instance, defect: Callable[[Loop[Any]], _Planted]) -> Instance | None:
    """The instance with a defect in each of its loops; None if it has no loop."""
    nodes = tuple(
        replace(node, loop=defect(node.loop)) if isinstance(node, LoopNode) else node
        for node in instance.program.nodes
    )
    if nodes == instance.program.nodes:
        return None
    return replace(instance, program=replace(instance.program, nodes=nodes))


@contextmanager
def swapped_weights(instance: Instance) -> Iterator[None]:
    """Inside, the modules that the card's loops use hold other weights than the instance names."""
    loops = [node for node in instance.program.nodes if isinstance(node, LoopNode)]
    used = {name for node in loops for name in (node.uses or instance.components)}
    modules = [module for name, module in instance.components.items() if name in used]
    found = (p for module in modules if isinstance(module, nn.Module) for p in module.parameters())
    parameters = list({id(parameter): parameter for parameter in found}.values())
    kept = [parameter.detach().clone() for parameter in parameters]
    try:
        # Turned round, and larger: of the same kind, and no model's own.
        _fill(parameters, [2 * tensor.flip(tuple(range(tensor.dim()))) for tensor in kept])
        yield
    finally:
        _fill(parameters, kept)


def _fill(parameters: list[nn.Parameter], tensors: list[Tensor]) -> None:
    with torch.no_grad():
        for parameter, tensor in zip(parameters, tensors, strict=True):
            parameter.copy_(tensor)
