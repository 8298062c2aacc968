"""Wording that several places share."""

from __future__ import annotations

from mutoscope.platform.wording import markdown_table


def test_no_cell_of_a_table_ends_its_own() -> None:
    shown = markdown_table(("what", "count"), [("objects/a|b\nc", 12345), ("", 0)])
    assert shown.splitlines() == [
        "| what | count |",
        "| --- | --- |",
        r"| objects/a\|b c | 12,345 |",
        "|  | 0 |",
    ]
