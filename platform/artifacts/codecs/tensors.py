"""Arrays as safetensors: a JSON header, then the raw little-endian bytes; any safetensors reader opens it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from mutoscope.platform.artifacts.codecs.encoded import Encoded
from mutoscope.platform.artifacts.codecs.image import describe
from mutoscope.platform.errors import InvalidParameter

MEDIA_TYPE = "application/x-safetensors"

_LONE = "array"
# One entry at most: safetensors writes its metadata in the order of a randomised hash map, and two entries
# would make equal values encode to different bytes.
_LONE_METADATA = {"mutoscope.value": _LONE}


def encode(value: Any, meta: dict[str, Any]) -> Encoded:
    """A mapping of arrays, or one array (stored under the name ``array`` and given back as an array).

    Meta gains ``tensors``: name to "dtype[shape]", for up to eight tensors; beyond that only their number,
    ``count``.
    """
    lone = isinstance(value, np.ndarray)
    arrays = {_LONE: value} if lone else value
    if (
        not isinstance(arrays, Mapping)
        or not arrays
        or not all(isinstance(a, np.ndarray) for a in arrays.values())
    ):
        raise InvalidParameter(
            "tensors", describe(value), "use an array or a non-empty mapping of names to arrays"
        )
    try:
        # safetensors takes the buffer as it lies in memory, whatever the strides or byte order say.
        native = {str(name): _native(array) for name, array in arrays.items()}
        data = save(native, metadata=_LONE_METADATA if lone else None)
    except (SafetensorError, KeyError, TypeError) as error:
        raise InvalidParameter("tensors", sorted(arrays), f"use numeric arrays ({error})") from None
    shown: dict[str, Any] = {"count": len(native)}
    if len(native) <= 8:
        shown = {"tensors": {name: describe(array) for name, array in sorted(native.items())}}
    return Encoded(data, MEDIA_TYPE, {**meta, **shown})


def decode(data: bytes) -> Any:
    """The mapping, or the array when one array was stored."""
    try:
        arrays = load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    except (SafetensorError, ValueError) as error:
        raise InvalidParameter(
            "tensors", f"{len(data)} bytes", f"use a valid safetensors file ({error})"
        ) from None
    if header.get("__metadata__") == _LONE_METADATA:
        return arrays[_LONE]
    return arrays


def _native(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    return array.astype(array.dtype.newbyteorder("<"), copy=False)
