"""Identifiers: time-ordered run ids and domain-tagged, canonical digests.

Every digest of a *structure* (memo keys, card digests, numeric contracts) goes through `digest`. The
encoding is injective: each value carries a type tag and its length, so `["v1", "2b"]` and `["v12", "b"]`
differ, `1`, `1.0`, `True` and `"1"` differ, and the order of mapping keys does not matter. The domain
separates uses, so equal structures in different roles never collide. Golden values in `tests/golden` pin
the encoding for good.

What counts as equal: tuples and lists of equal items, because a trip through JSON makes one of the other.
`0.0` and `-0.0` differ, as they do to arithmetic. Text is taken as it is, without Unicode normalisation: a
tokenizer tells a composed `é` from a decomposed one, so a key must too.
"""

from __future__ import annotations

import hashlib
import math
import re
import struct
from collections.abc import Mapping
from typing import Any, TypeGuard

import uuid_utils

from mutoscope.platform.errors import UnhashableInput

_SHA256 = re.compile(r"[0-9a-f]{64}")


def new_id() -> str:
    """A fresh UUIDv7 as text; ids sort by creation time."""
    return str(uuid_utils.uuid7())


def sha256(data: bytes) -> str:
    """Hex SHA-256 of raw bytes: the name of an artifact."""
    return hashlib.sha256(data).hexdigest()


def is_sha256(value: object) -> TypeGuard[str]:
    """Whether `value` is spelled as `sha256` spells it: 64 lower-case hex digits."""
    return isinstance(value, str) and _SHA256.fullmatch(value) is not None


def digest(domain: str, value: Any) -> str:
    """Hex SHA-256 of `value` in its canonical encoding, tagged with `domain`.

    Args:
        domain: what the digest stands for, with a version, such as ``mutoscope.memo/1``.
        value: None, bool, int, finite float, str, bytes, or lists, tuples and string-keyed mappings of these.

    Raises:
        UnhashableInput: for anything else; the message names the path to the value.
    """
    try:
        encoded = _encode(value, domain)
    except RecursionError:
        raise UnhashableInput(f"{domain} is nested too deeply, or holds itself: pass plain data") from None
    return hashlib.sha256(_frame(b"D", domain.encode()) + encoded).hexdigest()


def _frame(tag: bytes, payload: bytes) -> bytes:
    return tag + struct.pack(">Q", len(payload)) + payload


def _encode(value: Any, path: str) -> bytes:  # noqa: C901 - one case per type is the whole encoding
    match value:
        case None:
            return _frame(b"N", b"")
        case bool():
            return _frame(b"B", b"\x01" if value else b"\x00")
        case int():
            return _frame(b"I", _digits(value, path))
        case float():
            if not math.isfinite(value):
                raise UnhashableInput(f"{path}={value!r} has no canonical encoding: use a finite number")
            return _frame(b"F", struct.pack(">d", value))
        case str():
            return _frame(b"S", _utf8(value, path))
        case bytes():
            return _frame(b"Y", value)
        case Mapping():
            if not all(isinstance(key, str) for key in value):
                raise UnhashableInput(f"{path} has a key that is not text: use string keys")
            items = sorted(value.items(), key=lambda item: _utf8(item[0], f"a key of {path}"))
            return _frame(b"M", b"".join(_encode(k, path) + _encode(v, f"{path}.{k}") for k, v in items))
        case list() | tuple():  # no other sequence: a bytearray would pass for a list of integers
            return _frame(b"L", b"".join(_encode(v, f"{path}[{i}]") for i, v in enumerate(value)))
    raise UnhashableInput(
        f"{path} is a {type(value).__name__}, which has no canonical encoding: pass plain data"
    )


def _digits(value: int, path: str) -> bytes:
    try:
        return int.__repr__(value).encode()  # of the number itself, whatever a subclass prints
    except ValueError:
        raise UnhashableInput(f"{path} has too many digits: pass it as text or bytes") from None


def _utf8(value: str, path: str) -> bytes:
    try:
        return str.encode(value)  # of the text itself, whatever a subclass prints: str(StrMixin.A) is a name
    except UnicodeEncodeError:
        raise UnhashableInput(f"{path} holds a lone surrogate: use valid text") from None
