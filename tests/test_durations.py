"""Lengths of time as people write and read them."""

from __future__ import annotations

import pytest

from mutoscope.platform.durations import parse_duration, spell_duration
from mutoscope.platform.errors import InvalidParameter


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90.0),
        ("30m", 1800.0),
        (" 12H ", 43_200.0),
        ("7d", 604_800.0),
        ("1.5h", 5400.0),
        ("2w", 1_209_600.0),
        ("0s", 0.0),
    ],
)
def test_a_duration_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert parse_duration("keep", text) == seconds


@pytest.mark.parametrize("text", ["", "7", "d", "-1d", "1e3s", "7 days", "1d12h", "nan s", "36501d", "١d "])
def test_anything_else_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidParameter, match=r"grace='.*' is not valid: use a number and a unit"):
        parse_duration("grace", text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (0.5, "0.5 s"),
        (90.0, "1.5 min"),
        (3600.0, "1 h"),
        (86_400.0, "1 d"),
        (2_592_000.0, "30 d"),
    ],
)
def test_spelled_in_the_largest_unit(seconds: float, text: str) -> None:
    assert spell_duration(seconds) == text
