"""Requests that no waiting helps: they need more memory than the device has.

The refusal names the parameter that asks for too much, and a value that would fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from mutoscope.platform.engine.footprint import weights_bytes
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.memory import MemoryModel
from mutoscope.platform.engine.request import Request
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.wording import byte_size


def too_large(instance: Instance, request: Request, model: MemoryModel, budget: int) -> InvalidParameter:
    """Why a request would not fit a device of `budget` bytes even alone: the parameter, what the request
    needs, and a value that fits."""
    weights = weights_bytes(instance.components)
    need = model.need(instance.card.id, instance.program.extent(request), weights)
    wanted = (
        f"it needs {byte_size(need.total)} beside {byte_size(weights)} of weights, and the device has "
        f"{byte_size(budget)}"
    )
    excessive = list(_by_excess(instance, request))
    for name in excessive:
        fitting = _largest(instance, request, name, model, budget - weights)
        if fitting is not None:
            return InvalidParameter(name, request.parameters[name], f"{wanted}: use {fitting} or less")
    name = excessive[0] if excessive else "card"
    value = request.parameters.get(name, instance.card.id)
    return InvalidParameter(name, value, f"{wanted}: use a larger device")


def _by_excess(instance: Instance, request: Request) -> Iterator[str]:
    """The parameters that the request's extent grows with, the one farthest above its default first."""
    sizes = [
        (value / _default(instance, name, value), name)
        for name, value in request.parameters.items()
        if isinstance(value, int) and not isinstance(value, bool) and value > 1
        if _extent(instance, request, name, value // 2) < instance.program.extent(request)
    ]
    return iter([name for _, name in sorted(sizes, key=lambda size: -size[0])])


def _default(instance: Instance, name: str, value: int) -> float:
    default: Any = getattr(instance.recipe, name, None)
    return float(default) if isinstance(default, int) and default > 0 else float(value)


def _extent(instance: Instance, request: Request, name: str, value: int) -> float:
    changed = replace(request, parameters={**request.parameters, name: value})
    return instance.program.extent(changed)


def _largest(instance: Instance, request: Request, name: str, model: MemoryModel, room: int) -> int | None:
    """The largest value of a parameter with which the request fits, if there is one above nothing."""
    step = instance.recipe.size_multiple if name in ("height", "width") else 1
    least, most = 0, request.parameters[name] // step
    while most - least > 1:
        middle = (least + most) // 2
        extent = _extent(instance, request, name, middle * step)
        if model.need(instance.card.id, extent, 0).total <= room:
            least = middle
        else:
            most = middle
    return least * step or None
