"""A program walked from end to end without an engine: one request, each step run by whoever asks.

This is the loop contract spelled out, for those who want to see a card's work plans: calibration, which
collects their rows, and checks that run them in another way than the engine does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.loop import WARNINGS, WEIGHTS, ComponentNode, Done, LoopNode, WorkPlan
from mutoscope.platform.engine.request import Output, Request
from mutoscope.platform.engine.validation import checked_request

Runner = Callable[[WorkPlan], Any]
"""Runs a plan and returns its result, as `plan.run` does."""


def walk(instance: Instance, request: Request, run: Runner) -> Mapping[str, Output]:
    """Serve one request and return its outputs, running every work plan by `run`.

    Raises:
        InvalidParameter: the request cannot be served.
    """
    request = checked_request(instance.card, instance.recipe, request)
    instance.program.check(request)
    slots: dict[str, Any] = {"request": request, WEIGHTS: instance.weights, **request.inputs}
    view = MappingProxyType(slots)
    for node in instance.program.nodes:
        filled = _component(node, view, run) if isinstance(node, ComponentNode) else _loop(node, view, run)
        slots.update({name: value for name, value in filled.items() if name != WARNINGS})
    return instance.program.outputs(view)


def _component(node: ComponentNode, slots: Mapping[str, Any], run: Runner) -> Mapping[str, Any]:
    plan = WorkPlan(node.kind, node.shape(slots), partial(node.run, slots), node.cost)
    filled: Mapping[str, Any] = run(plan)
    return filled


def _loop(node: LoopNode, slots: Mapping[str, Any], run: Runner) -> Mapping[str, Any]:
    state = node.loop.init(slots)
    while not isinstance(plan := node.loop.next(state), Done):
        node.loop.advance(state, run(plan))
    return node.loop.finalize(state)
