"""The safetensors format, as far as it takes to find each tensor's bytes without reading them.

A file is 8 bytes of little-endian header length, that many bytes of JSON, then the tensors' bytes:

    {"__metadata__": {"format": "pt"},
     "proj.weight": {"dtype": "F16", "shape": [128, 64], "data_offsets": [0, 16384]}}

Offsets count from the end of the header. The tensors lie one after the other and fill the file to its last
byte: the safetensors library refuses holes, overlaps and leftovers, and so does `read_layout`. A file cut
short by a broken download keeps a valid header, which is why its length is part of the check.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

METADATA = "__metadata__"

LENGTH_BYTES = 8
"""What comes before the JSON: its length."""

_HEADER_LIMIT = 100 * 2**20
"""The format's own limit, about 100 MB; a larger length means that the file is something else."""

ITEM_BYTES = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "I16": 2,
    "U16": 2,
    "F16": 2,
    "BF16": 2,
    "I32": 4,
    "U32": 4,
    "F32": 4,
    "I64": 8,
    "U64": 8,
    "F64": 8,
    "C64": 8,
}
"""Bytes of one element. Types the format has gained since are carried as they are, sizes unchecked."""


class NotSafetensors(ValueError):
    """Bytes that are no whole safetensors file. The message continues a sentence that begins with the file's
    name; whoever catches it knows the remedy."""


@dataclass(frozen=True, slots=True)
class TensorSpan:
    """One tensor: `size` bytes of the file from `start` on."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """Where everything lies.

    Attributes:
        header_size: bytes before the first tensor, the length field included.
        spans: the tensors in the order of the file, each beginning where the one before ends.
        metadata: the header's free text by key.
    """

    header_size: int
    spans: tuple[TensorSpan, ...]
    metadata: Mapping[str, str]


def read_layout(read: Callable[[int, int], bytes], size: int) -> TensorLayout:
    """The layout of a file of `size` bytes.

    Args:
        read: gives the bytes from a start, so many; called for the header only.

    Raises:
        NotSafetensors: damaged, incomplete or something else.
    """
    length = struct.unpack("<Q", read(0, LENGTH_BYTES).ljust(LENGTH_BYTES, b"\0"))[0]
    if size < LENGTH_BYTES or not 2 <= length <= min(_HEADER_LIMIT, size - LENGTH_BYTES):
        raise NotSafetensors(f"is truncated or no safetensors file ({size} bytes)")
    header_size = LENGTH_BYTES + length
    try:
        header = json.loads(read(LENGTH_BYTES, length))
        metadata = {str(key): str(value) for key, value in (header.pop(METADATA, None) or {}).items()}
        spans = [_span(name, entry, header_size) for name, entry in header.items()]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise NotSafetensors("has no readable safetensors header") from None
    spans.sort(key=lambda span: (span.start, span.size))
    _check(spans, header_size, size)
    return TensorLayout(header_size, tuple(spans), metadata)


def build_header(
    tensors: Iterable[tuple[str, str, Sequence[int], int]], metadata: Mapping[str, str]
) -> bytes:
    """The bytes before the first tensor of a file of those tensors in that order. Equal input, equal bytes.

    Args:
        tensors: name, dtype, shape and size in bytes of each.
    """
    header: dict[str, Any] = {METADATA: dict(metadata)}
    position = 0
    for name, dtype, shape, size in tensors:
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, position + size]}
        position += size
    text = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % LENGTH_BYTES)  # as the library does it, so that tensors lie aligned
    return struct.pack("<Q", len(text)) + text


def _span(name: str, entry: Mapping[str, Any], header_size: int) -> TensorSpan:
    begin, end = (int(offset) for offset in entry["data_offsets"])
    shape = tuple(int(side) for side in entry["shape"])
    return TensorSpan(name, str(entry["dtype"]), shape, header_size + begin, end - begin)


def _check(spans: list[TensorSpan], header_size: int, size: int) -> None:
    """Every byte belongs to exactly one tensor, and each tensor has as many as its shape takes."""
    needed = max((span.start + span.size for span in spans), default=header_size)
    if size != needed:
        raise NotSafetensors(f"is damaged: {size} bytes where its header needs {needed}")
    position = header_size
    for span in spans:
        if span.start != position or span.size < 0:
            kind = "overlaps another" if span.start < position or span.size < 0 else "leaves a hole before it"
            raise NotSafetensors(f"is damaged: tensor {span.name} {kind}")
        position += span.size
        expected = ITEM_BYTES.get(span.dtype, 0) * math.prod(span.shape)
        if span.dtype in ITEM_BYTES and span.size != expected:
            raise NotSafetensors(
                f"is damaged: tensor {span.name} has {span.size} bytes where {span.dtype}{list(span.shape)} "
                f"takes {expected}"
            )
