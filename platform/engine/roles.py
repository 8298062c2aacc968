"""The roles under which a run's inputs are recorded: a slot's name, or ``name.0``, ``name.1`` of one that
takes many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from mutoscope.platform.engine.card import Slot

Value = TypeVar("Value")


def role(slot: Slot, ordinal: int) -> str:
    """The role of one of a slot's many."""
    return f"{slot.name}.{ordinal}"


def by_slot(inputs: Mapping[str, Value]) -> dict[str, Any]:
    """Values by role as values by slot: those of a slot that takes many are a list, in order."""
    values: dict[str, Any] = {}
    many: dict[str, dict[int, Value]] = {}
    for name, value in inputs.items():
        slot, dot, ordinal = name.rpartition(".")
        if dot:
            many.setdefault(slot, {})[int(ordinal)] = value
        else:
            values[name] = value
    return values | {slot: [items[at] for at in sorted(items)] for slot, items in many.items()}
