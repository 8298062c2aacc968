"""How results look."""

from __future__ import annotations

import json

import pytest

from mutoscope.platform.cli import render


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (16 << 20, "16.0 MiB"),
        (5 << 40, "5.0 TiB"),
    ],
)
def test_sizes(count: int, shown: str) -> None:
    assert render.size(count) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (-0.2, "0.0 s"),
        (0.44, "0.4 s"),
        (42.0, "42 s"),
        (180.0, "3 min"),
        (3 * 3600.0, "3 h"),
        (3 * 86400.0, "3 d"),
    ],
)
def test_durations(value: float, shown: str) -> None:
    assert render.seconds(value) == shown


def test_age_counts_from_now() -> None:
    assert render.age(1000.0, now=1042.0) == "42 s ago"
    assert render.age(None) == ""


def test_table_aligns_and_keeps_cells_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    render.table(["name", "about"], [("video:3fa9", "two\nlines"), ("x", None)], empty="nothing")
    assert capsys.readouterr().out == "NAME        ABOUT\nvideo:3fa9  two lines\nx\n"


def test_an_empty_table_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    render.table(["name"], [], empty="nothing yet")
    assert capsys.readouterr().out == "nothing yet\n"


def test_pairs_leave_out_what_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    render.pairs({"seed": 0, "worker": None, "state": "queued"}, indent=2)
    assert capsys.readouterr().out == "  seed   0\n  state  queued\n"


def test_json_keeps_letters(capsys: pytest.CaptureFixture[str]) -> None:
    render.emit_json({"prompt": "ein blaues Dreieck über grünem Kreis"})
    out = capsys.readouterr().out
    assert "über grünem" in out
    assert json.loads(out) == {"prompt": "ein blaues Dreieck über grünem Kreis"}


def test_shorten_cuts_at_the_width() -> None:
    assert render.shorten("a  red\ncircle", 20) == "a red circle"
    assert render.shorten("abcdef", 4) == "abc…"
