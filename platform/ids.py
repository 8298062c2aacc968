"""Identifiers: time-ordered run ids and domain-tagged, canonical digests.

Every digest of a *structure* (memo keys, card digests, numeric contracts) goes through `digest`. The
encoding is injective: each value carries a type tag and its length, so `["v1", "2b"]` and `["v12", "b"]`
differ, `1`, `1.0`, `True` and `"1"` differ, and the order of mapping keys does not matter. The domain
separates uses, so equal structures in different roles never collide. Golden values in `tests/golden` pin
the encoding for good.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import uuid_utils

from mutoscope.platform.errors import UnhashableInput


def new_id() -> str:
    """A fresh UUIDv7 as text; ids sort by creation time."""
    return str(uuid_utils.uuid7())


def sha256(data: bytes) -> str:
    """Hex SHA-256 of raw bytes: the name of an artifact."""
    return hashlib.sha256(data).hexdigest()


def digest(domain: str, value: Any) -> str:
    """Hex SHA-256 of `value` in its canonical encoding, tagged with `domain`.

    Args:
        domain: what the digest stands for, with a version, such as ``mutoscope.memo/1``.
        value: None, bool, int, finite float, str, bytes, or lists, tuples and string-keyed mappings of these.

    Raises:
        UnhashableInput: for anything else; the message names the path to the value.
    """
    return hashlib.sha256(_frame(b"D", domain.encode()) + _encode(value, domain)).hexdigest()


def _frame(tag: bytes, payload: bytes) -> bytes:
    return tag + struct.pack(">Q", len(payload)) + payload


def _encode(value: Any, path: str) -> bytes:  # noqa: C901 - one case per type is the whole encoding
    match value:
        case None:
            return _frame(b"N", b"")
        case bool():
            return _frame(b"B", b"\x01" if value else b"\x00")
        case int():
            return _frame(b"I", str(int(value)).encode())
        case float():
            if not math.isfinite(value):
                raise UnhashableInput(f"{path}={value!r} has no canonical encoding: use a finite number")
            return _frame(b"F", struct.pack(">d", value))
        case str():
            try:
                return _frame(b"S", str(value).encode())
            except UnicodeEncodeError:
                raise UnhashableInput(f"{path} holds a lone surrogate: use valid text") from None
        case bytes():
            return _frame(b"Y", value)
        case Mapping():
            if not all(isinstance(key, str) for key in value):
                raise UnhashableInput(f"{path} has a key that is not text: use string keys")
            items = sorted(value.items(), key=lambda item: item[0].encode())
            return _frame(b"M", b"".join(_encode(k, path) + _encode(v, f"{path}.{k}") for k, v in items))
        case Sequence():
            return _frame(b"L", b"".join(_encode(v, f"{path}[{i}]") for i, v in enumerate(value)))
    raise UnhashableInput(
        f"{path} is a {type(value).__name__}, which has no canonical encoding: pass plain data"
    )
