"""An example request for any card: what calibration, checks and the template tests run.

Inputs are drawn by their slot's kind at the recipe's default size, or are its `examples`. A required one
of the parameters takes the first of its field's `examples`; one of text without any describes a
picture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic.fields import FieldInfo

from mutoscope.platform.engine.card import Card, Recipe, Slot
from mutoscope.platform.engine.request import Profile, Request
from mutoscope.platform.errors import InvalidInput

TEXT = "a red circle left of a blue square"
FRAMES = 5
SAMPLES = 4_800
"""Per channel: a tenth of a second at 48 kHz."""


def example_request(
    card: Card,
    recipe: Recipe,
    *,
    name: str = "example",
    seed: int = 0,
    profile: Profile = Profile.SERVE,
    **parameters: Any,
) -> Request:
    """A request that the card serves. `parameters` are set as given; other optional ones are left out. Inputs
    differ by seed, so that a card that draws nothing has other work for another one.

    Raises:
        InvalidInput: a required input or parameter of a kind that cannot be made up here.
    """
    required = {
        field: _value(card, field, info)
        for field, info in card.parameters.model_fields.items()
        if info.is_required()
    }
    return Request(
        id=name,
        card=card.id,
        inputs={slot.name: example_input(card, slot, recipe, shift=seed) for slot in _filled(card, recipe)},
        parameters={**required, **parameters},
        seed=seed,
        profile=profile,
    )


def example_input(card: Card, slot: Slot, recipe: Recipe, shift: int = 0) -> Any:
    """Something of the slot's kind, moved by `shift`. Raises InvalidInput for a kind without an example."""
    if slot.many:
        return [example_input(card, replace(slot, many=False), recipe, shift + at) for at in range(2)]
    if slot.examples:
        return slot.examples[shift % len(slot.examples)]
    match slot.kind:
        case "image":
            return _picture(recipe.height, recipe.width, shift)
        case "video":
            return np.stack([_picture(recipe.height, recipe.width, shift + at) for at in range(FRAMES)])
        case "audio":
            wave = np.sin(np.arange(shift, shift + SAMPLES, dtype=np.float32) / 20)
            return np.stack([wave, -wave])
        case "text":
            return TEXT
    raise InvalidInput(f"no example of kind {slot.kind} for {slot.name} of {card.id}: give a request")


def _filled(card: Card, recipe: Recipe) -> tuple[Slot, ...]:
    """Required slots; of a scorer that requires none the first one, since it scores one of several."""
    required = tuple(
        slot for slot in card.inputs if slot.required or slot.in_example or slot.name in recipe.needed_inputs
    )
    return required or (card.inputs[:1] if card.run_kind == "reward" else ())


def _value(card: Card, name: str, info: FieldInfo) -> Any:
    if info.examples:
        return info.examples[0]
    if info.annotation is str:
        return TEXT
    raise InvalidInput(f"parameter {name} of {card.id} has no example: declare Field(examples=[...])")


def _picture(height: int, width: int, shift: int) -> NDArray[np.uint8]:
    """Three gradients, so that no flip or swap of it is the same picture, moved to the left."""
    rows, columns = np.mgrid[0:height, 0:width]
    channels: Mapping[int, Any] = {0: rows * 3, 1: columns * 5, 2: rows + 2 * columns}
    picture = np.stack([channels[at] % 256 for at in range(3)], axis=-1).astype(np.uint8)
    return np.roll(picture, -(shift % width), axis=1)
