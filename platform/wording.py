"""How the platform words sizes, counts, long texts and tables: the same in the terminal, on pages and in
UIs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any


def byte_size(count: int) -> str:
    """Bytes as a person reads them: 512 B, 3.4 KiB, 16.0 MiB."""
    if count < 1024:
        return f"{count} B"
    value = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if value < 1024:
            return f"{value:.1f} {unit}"
    return f"{value / 1024:.1f} TiB"


def excerpt(text: str, width: int = 60) -> str:
    """The text on one line, cut to `width` characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else f"{line[: width - 1].rstrip()}…"


def plain(value: Any) -> str:
    """JSON data as text: a string as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def several(count: int, noun: str) -> str:
    """A count with its noun: 1 image, 99,990 images, 2 trajectories, 3 weights."""
    if count != 1 and noun not in _UNCOUNTED:
        noun = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {noun}"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown. No cell can end its own, whatever it holds."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_markdown_cell, line))} |" for line in lines)


def _markdown_cell(value: object) -> str:
    shown = f"{value:,}" if isinstance(value, int) else str(value)
    return " ".join(shown.split()).replace("|", "\\|")


_UNCOUNTED = ("audio", "json", "weights")
