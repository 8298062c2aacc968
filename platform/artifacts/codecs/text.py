"""Text: str as UTF-8."""

from __future__ import annotations

from typing import Any

from mutoscope.platform.artifacts.codecs.encoded import Encoded
from mutoscope.platform.errors import InvalidParameter

MEDIA_TYPE = "text/plain; charset=utf-8"


def encode(value: Any, meta: dict[str, Any]) -> Encoded:
    """UTF-8, no newline added."""
    if not isinstance(value, str):
        raise InvalidParameter("text", type(value).__name__, "use str")
    try:
        return Encoded(value.encode(), MEDIA_TYPE, meta)
    except UnicodeEncodeError as error:
        raise InvalidParameter("text", value, f"use text without lone surrogates ({error.reason})") from None


def decode(data: bytes) -> str:
    """The text."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidParameter("text", f"{len(data)} bytes", f"use UTF-8 ({error.reason})") from None
