"""Sentinels: each limit on both of its sides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mutoscope.platform.training.sentinels import Limits, Readings, breaches

FIRST = Readings(diversity=0.2, edge_density=0.1, colour_entropy=2.0, dark_fraction=0.1, held_out=0.9)


def test_nothing_that_stays_is_a_breach() -> None:
    assert breaches(FIRST, FIRST, Limits()) == []


@pytest.mark.parametrize(
    ("reading", "allowed", "beyond", "sentinel"),
    [
        ("diversity", 0.1, 0.0999, "diversity"),  # half of 0.2
        ("edge_density", 0.0401, 0.0399, "edge density"),  # 0.4 of 0.1
        ("edge_density", 0.3, 0.3001, "edge density"),  # three times 0.1
        ("colour_entropy", 0.8, 0.7999, "colour entropy"),  # 0.4 of 2.0
        ("dark_fraction", 0.5, 0.5001, "dark fraction"),  # 0.1 and 0.4 more
        ("held_out", 0.7, 0.6999, "held-out score"),  # 0.2 below 0.9
    ],
)
def test_each_sentinel_on_both_sides_of_its_limit(
    reading: str, allowed: float, beyond: float, sentinel: str
) -> None:
    assert breaches(FIRST, replace(FIRST, **{reading: allowed}), Limits()) == []
    (breach,) = breaches(FIRST, replace(FIRST, **{reading: beyond}), Limits())
    assert (breach.sentinel, breach.value) == (sentinel, beyond)
    assert breach.limit == pytest.approx(allowed, rel=0.01)
    assert str(breach).startswith(f"{sentinel} is {beyond:.4g}, its limit {breach.limit:.4g} (it began at ")


def test_a_reading_that_went_missing_is_a_breach() -> None:
    lost = replace(FIRST, diversity=None, held_out=None)
    assert [one.sentinel for one in breaches(FIRST, lost, Limits())] == ["diversity", "held-out score"]


def test_what_had_no_value_at_first_has_no_limit() -> None:
    first = replace(FIRST, diversity=None, held_out=None)
    assert breaches(first, FIRST, Limits()) == []


def test_limits_can_be_taken_away() -> None:
    gone = Readings(0.0, 99.0, 0.0, 1.0, -5.0)
    none = Limits(**dict.fromkeys(Limits.model_fields))
    assert breaches(FIRST, gone, none) == []
    assert len(breaches(FIRST, gone, Limits())) == 5
