"""Plain data as JSON: keys sorted, no insignificant space, so that equal data are equal bytes."""

from __future__ import annotations

import json
from typing import Any

from mutoscope.platform.artifacts.codecs.encoded import Encoded
from mutoscope.platform.errors import InvalidParameter

MEDIA_TYPE = "application/json"


def encode(value: Any, meta: dict[str, Any]) -> Encoded:
    """UTF-8 JSON with a final newline. NaN and infinities are refused: JSON has no such numbers."""
    try:
        text = json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return Encoded(f"{text}\n".encode(), MEDIA_TYPE, meta)
    except (TypeError, ValueError) as error:
        raise InvalidParameter("json", value, f"use plain JSON data ({error})") from None


def decode(data: bytes) -> Any:
    """The data."""
    try:
        return json.loads(data)
    except ValueError as error:
        raise InvalidParameter("json", f"{len(data)} bytes", f"use valid JSON ({error})") from None
