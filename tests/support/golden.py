"""Texts for people, compared whole with files in `tests/golden`: what changes from run to run is starred out.

After a change that is meant, `UPDATE_GOLDEN=1 pytest …` writes the files anew; the diff shows what it did.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from tests.support.text import starred

FOLDER = Path(__file__).parents[1] / "golden"
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [A-Z0-9+-]+")
_AGE = re.compile(r"\d[\d.]* (s|min|h|d) ago")


def assert_golden(name: str, actual: str) -> None:
    """`actual`, ids, digests, times and ages starred out, is what `tests/golden/<name>.txt` holds."""
    path = FOLDER / f"{name}.txt"
    told = _AGE.sub("*** ago", _TIME.sub("***", starred(actual)))
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(told, encoding="utf-8")
    assert told == path.read_text(encoding="utf-8"), f"the text changed: if that is meant, update {path}"
