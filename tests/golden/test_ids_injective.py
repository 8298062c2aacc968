"""Equal digests mean equal values: a seeded search among values built to be confused with each other.

`MUTOSCOPE_SEARCH=50 pytest tests/golden/test_ids_injective.py` looks at that many times as many.
"""

from __future__ import annotations

import json
import os
import random
import struct
from collections.abc import Callable
from typing import Any

from mutoscope.platform.ids import digest

DOMAIN = "mutoscope.test/1"
VALUES = 4_000 * int(os.environ.get("MUTOSCOPE_SEARCH", "1"))

# Few and short, so that neighbours meet: empty and zero of every type, digits as text, numbers and bytes, the
# encoding's own tags and a frame of it as text, both spellings of an accent, integers beyond 64 bits.
NUMBERS = (0, 1, -1, 12, 2**63, 2**64 + 1, -(2**80), 0.0, -0.0, 1.0, 12.0, 5e-324, 1e308)
TEXTS = ("", "0", "1", "12", "True", "None", "a", "b", "ab", "\u00e9", "e\u0301", "S", "\x00" * 7 + "\x01")
BYTES = (b"", b"0", b"1", b"a", b"\x00", b"S" + struct.pack(">Q", 1) + b"a")
LEAVES: tuple[Any, ...] = (None, True, False, *NUMBERS, *TEXTS, *BYTES)


def value(draw: random.Random, depth: int) -> Any:
    """A value at most `depth` containers deep."""
    shape = draw.randrange(4) if depth else 0
    if shape < 2:
        return draw.choice(LEAVES)
    items = [value(draw, depth - 1) for _ in range(draw.randrange(4))]
    if shape == 2:
        return items
    return {draw.choice(("", "a", "b", "ab", "0", "\u00e9")): item for item in items}


def neighbour(draw: random.Random, of: Any) -> Any:
    """The same again with one thing moved: an item nested, dropped, turned round, spelt as text."""
    changes: list[Callable[[], Any]] = [lambda: [of], lambda: {"a": of}, lambda: str(of)]
    if isinstance(of, list) and of:
        spot = draw.randrange(len(of))
        changes += [
            lambda: of[:spot] + of[spot + 1 :],
            lambda: of[::-1],
            lambda: [*of[:spot], [*of[spot:]]],
            lambda: dict(zip("abcdef", of, strict=False)),
            lambda: [*of[:spot], neighbour(draw, of[spot]), *of[spot + 1 :]],
        ]
    if isinstance(of, dict) and of:
        key = draw.choice(sorted(of))
        changes += [
            lambda: {**of, key: neighbour(draw, of[key])},
            lambda: {**of, f"{key}a": of[key]},
            lambda: [part for pair in sorted(of.items()) for part in pair],
            lambda: list(of.values()),
        ]
    return draw.choice(changes)()


def identity(of: Any) -> Any:
    """What a value is, by Python's own comparison: its type beside it, since 1 == 1.0 == True there."""
    match of:
        case list():
            return ("list", tuple(identity(item) for item in of))
        case dict():
            return ("dict", tuple(sorted((key, identity(item)) for key, item in of.items())), len(of))
        case float():
            return ("float", of.hex())
    return (type(of).__name__, repr(of))


def test_values_that_differ_have_digests_that_differ() -> None:
    draw = random.Random(20_26)
    known: dict[str, Any] = {}
    for _ in range(VALUES):
        one = value(draw, 4)
        for candidate in (one, neighbour(draw, one), neighbour(draw, one)):
            found = known.setdefault(digest(DOMAIN, candidate), identity(candidate))
            assert found == identity(candidate), candidate
    assert len(known) > VALUES // 2, "the search saw many different values"


def test_values_that_are_equal_have_one_digest() -> None:
    draw = random.Random(7)

    def shuffled(of: Any) -> Any:
        match of:
            case list():
                return tuple(shuffled(item) for item in of)
            case dict():
                items = list(of.items())
                draw.shuffle(items)
                return {key: shuffled(item) for key, item in items}
        return of

    for _ in range(VALUES // 4):
        one = value(draw, 5)
        assert digest(DOMAIN, shuffled(one)) == digest(DOMAIN, one)


def test_a_trip_through_json_changes_no_digest() -> None:
    # Key parts are stored as JSON and a replay computes its key from what it reads there.
    draw, seen = random.Random(3), 0
    for _ in range(VALUES // 4):
        one = value(draw, 4)
        try:
            text = json.dumps(one)
        except TypeError:  # bytes, which key parts may not hold
            continue
        seen += 1
        assert digest(DOMAIN, json.loads(text)) == digest(DOMAIN, one)
    assert seen > VALUES // 16
