"""What an encoder returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Encoded:
    """Bytes ready for the store, with the media type and meta of their reference."""

    data: bytes
    media_type: str
    meta: Mapping[str, Any] = field(default_factory=dict)
