"""Lengths of time as people write them: ``90s``, ``30m``, ``12h``, ``7d``, ``4w``."""

from __future__ import annotations

import re

from mutoscope.platform.errors import InvalidParameter

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([smhdw])")
_LONGEST = 100 * 365 * _UNITS["d"]


def parse_duration(field: str, text: str) -> float:
    """Seconds. Raises InvalidParameter, naming `field`, when the text is no length of time."""
    match = _DURATION.fullmatch(text.strip().lower())
    seconds = float(match[1]) * _UNITS[match[2]] if match else -1.0
    if not 0 <= seconds <= _LONGEST:
        raise InvalidParameter(field, text, "use a number and a unit (s, m, h, d, w) such as 90s or 7d")
    return seconds


def spell_duration(seconds: float) -> str:
    """The same length as people read it, in its largest unit: ``7 d``, ``1.5 h``, ``20 s``."""
    for unit, shown in (("d", "d"), ("h", "h"), ("m", "min")):
        if seconds >= _UNITS[unit]:
            return f"{seconds / _UNITS[unit]:.1f}".removesuffix(".0") + f" {shown}"
    return f"{seconds:.1f}".removesuffix(".0") + " s"
