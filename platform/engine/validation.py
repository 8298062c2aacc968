"""What is refused before any work is done. NumPy only: a flow host can ask too.

Every refusal is an `InvalidParameter` that names the field, the value and what would be accepted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mutoscope.platform.clip import CHANNELS
from mutoscope.platform.engine.card import Card, Recipe, Slot
from mutoscope.platform.engine.request import Request
from mutoscope.platform.errors import InvalidParameter

SEED_LIMIT = 2**63


def checked_request(card: Card, recipe: Recipe, request: Request) -> Request:
    """The request with its parameters resolved against the recipe.

    Raises:
        InvalidParameter: for the first thing wrong with its card, profile, seed, inputs or parameters.
    """
    if request.card != card.id:
        raise InvalidParameter("card", request.card, f"this instance serves {card.id}")
    check_seed(request.seed)
    if not (isinstance(request.priority, int | float) and 0 < request.priority < math.inf):
        raise InvalidParameter("priority", request.priority, "use a number greater than 0")
    check_inputs(card, request.inputs)
    recipe.check_inputs(request.inputs)
    return replace(request, parameters=card.resolve(request.parameters, recipe, request.profile))


def check_seed(seed: Any) -> int:
    """The seed, if it is an integer a generator takes."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < SEED_LIMIT:
        raise InvalidParameter("seed", seed, "use an integer from 0 to 2**63 - 1")
    return seed


def check_inputs(card: Card, inputs: Mapping[str, Any]) -> None:
    """Refuse unknown slots, missing required ones, and values of the wrong type, dtype or shape."""
    slots = {slot.name: slot for slot in card.inputs}
    for name, value in inputs.items():
        if name not in slots:
            allowed = ", ".join(slots) or "no inputs"
            raise InvalidParameter(name, _describe(value), f"{card.id} takes {allowed}")
        if slots[name].many:
            _check_many(slots[name], value)
        else:
            _check_value(slots[name], value)
    for name, slot in slots.items():
        if slot.required and name not in inputs:
            raise InvalidParameter(
                name, None, f"{card.id} needs this input of kind {slot.kind}; pass {name}=..."
            )


def _check_many(slot: Slot, values: Any) -> None:
    if not isinstance(values, list | tuple) or not values:
        raise InvalidParameter(slot.name, _describe(values), f"use a list of one {slot.kind} or more")
    for at, value in enumerate(values):
        _check_value(replace(slot, name=f"{slot.name}.{at}"), value)


def _check_value(slot: Slot, value: Any) -> None:
    match slot.kind:
        case "image":
            _check_pixels(slot.name, value, ("height", "width"))
        case "video":
            _check_pixels(slot.name, value, ("frames", "height", "width"))
        case "audio":
            _check_samples(slot.name, value)
        case "text" if not isinstance(value, str):
            raise InvalidParameter(slot.name, _describe(value), "use text")


def _check_pixels(name: str, value: Any, axes: tuple[str, ...]) -> None:
    shape = tuple(value.shape) if isinstance(value, np.ndarray) and value.dtype == np.uint8 else ()
    if len(shape) != len(axes) + 1 or shape[-1] != 3 or 0 in shape:
        raise InvalidParameter(name, _describe(value), f"use a uint8 array ({', '.join(axes)}, 3)")


def _check_samples(name: str, value: Any) -> None:
    shape: tuple[int, ...] = ()
    if isinstance(value, np.ndarray) and value.dtype == np.float32:
        shape = value.shape
    if len(shape) != 2 or shape[0] not in CHANNELS or not shape[1]:
        raise InvalidParameter(
            name, _describe(value), "use a float32 array (channels, samples), 1 or 2 channels"
        )
    if not (np.abs(value) <= 1).all():
        raise InvalidParameter(name, _describe(value), "use finite samples from -1 to 1")


def _describe(value: Any) -> Any:
    """Arrays by dtype and shape; their elements say nothing in an error line."""
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{value.dtype} {tuple(value.shape)}"
    return value
