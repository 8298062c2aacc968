"""Edit distance and what counts as the same text."""

from __future__ import annotations

import itertools

import pytest

from mutoscope.models.reward.ocr.distance import edit_distance, normalised, similarity


@pytest.mark.parametrize(
    ("one", "other", "distance"),
    [
        ("", "", 0),
        ("", "abc", 3),
        ("kitten", "sitting", 3),
        ("flaw", "lawn", 2),
        ("OPEN", "OPEN", 0),
        ("ab", "ba", 2),
    ],
)
def test_distances(one: str, other: str, distance: int) -> None:
    assert edit_distance(one, other) == edit_distance(other, one) == distance


def test_it_is_a_metric() -> None:
    words = ["".join(word) for length in range(4) for word in itertools.product("ab", repeat=length)]
    for a, b, c in itertools.product(words, repeat=3):
        assert edit_distance(a, c) <= edit_distance(a, b) + edit_distance(b, c)
    assert all((edit_distance(a, b) == 0) == (a == b) for a, b in itertools.product(words, repeat=2))


def test_similarity_is_relative_to_the_longer_text() -> None:
    assert similarity("", "") == 1.0
    assert similarity("abcd", "") == similarity("", "abcd") == 0.0
    assert similarity("hallo", "hello") == pytest.approx(0.8)
    assert similarity("hello hello hello", "hello") == pytest.approx(5 / 17)


@pytest.mark.parametrize(
    ("written", "compared"),
    [
        ("  Open\n 24  hours ", "open 24 hours"),
        ("ＯＰＥＮ", "open"),
        ("STRASSE", "strasse"),
        ("Straße", "strasse"),
    ],
)
def test_normalisation(written: str, compared: str) -> None:
    assert normalised(written) == compared


def test_case_is_kept_if_it_counts() -> None:
    assert normalised(" Open  UP", match_case=True) == "Open UP"
