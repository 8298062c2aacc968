"""The bytes of a result, whatever its outputs hold, so that two results can be compared bit for bit."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from mutoscope.platform.engine.request import Result

Content = Mapping[str, bytes]
"""Every value of every output by its path, such as "latent.latents"."""


def content(result: Result) -> dict[str, bytes]:
    """Values, and the small facts beside them, of every output slot."""
    found: dict[str, bytes] = {}
    for slot, output in result.outputs.items():
        found.update(_leaves(slot, output.value))
        found.update(_leaves(f"{slot}.meta", output.meta))
    return found


def differing(one: Content, other: Content) -> tuple[str, ...]:
    """Paths that differ, or that one side lacks."""
    return tuple(path for path in sorted({*one, *other}) if one.get(path) != other.get(path))


def largest_difference(one: Result, other: Result) -> float:
    """Largest difference of two results' float32 arrays, element by element; 0 if they have none."""
    left, right = (dict(_arrays(result)) for result in (one, other))
    pairs = [(left[path], right[path]) for path in left.keys() & right.keys()]
    return max((float(np.abs(a - b).max()) for a, b in pairs if a.shape == b.shape and a.size), default=0.0)


def _arrays(result: Result) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    for slot, output in result.outputs.items():
        for path, value in _values(slot, output.value):
            if isinstance(value, np.ndarray) and value.dtype == np.float32:
                yield path, value


def _leaves(path: str, value: Any) -> Iterator[tuple[str, bytes]]:
    for name, leaf in _values(path, value):
        if isinstance(leaf, np.ndarray):
            yield name, f"{leaf.dtype}{leaf.shape}".encode() + np.ascontiguousarray(leaf).tobytes()
        else:
            yield name, repr(leaf).encode()


def _values(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Arrays and plain values inside a value, with their paths."""
    match value:
        case Tensor():
            yield path, value.detach().cpu().numpy()
        case Mapping():
            for name, part in value.items():
                yield from _values(f"{path}.{name}", part)
        case str() | bytes():
            yield path, value
        case Sequence():
            for at, part in enumerate(value):
                yield from _values(f"{path}[{at}]", part)
        case _ if dataclasses.is_dataclass(value):
            for part in dataclasses.fields(value):
                yield from _values(f"{path}.{part.name}", getattr(value, part.name))
        case _:
            yield path, value
