"""How results look: lines, tables, JSON, sizes and ages. Everything a command prints goes through here."""

from __future__ import annotations

import json as jsonlib
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import typer

from mutoscope.platform.wording import byte_size as size
from mutoscope.platform.wording import excerpt as shorten

__all__ = [
    "age",
    "clock",
    "contrast",
    "emit_json",
    "note",
    "pairs",
    "say",
    "seconds",
    "shorten",
    "size",
    "table",
]


def say(line: str = "") -> None:
    """One line for people, at once even into a pipe."""
    typer.echo(line)
    sys.stdout.flush()


def note(line: str) -> None:
    """One line for people that is no result: on stderr, so that stdout stays what was asked for."""
    typer.echo(line, err=True)


def emit_json(value: Any) -> None:
    """One JSON document on stdout."""
    typer.echo(jsonlib.dumps(value, indent=2, default=str, ensure_ascii=False))


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str) -> None:
    """Aligned columns without frames, so that a pipe gets the whole of every cell."""
    cells = [[_cell(value) for value in row] for row in rows]
    if not cells:
        say(empty)
        return
    widths = [max(len(row[i]) for row in [list(columns), *cells]) for i in range(len(columns))]
    for row in [[column.upper() for column in columns], *cells]:
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def pairs(values: Mapping[str, Any], *, indent: int = 0) -> None:
    """Names and values, aligned; what is None or empty is left out."""
    shown = {name: value for name, value in values.items() if value is not None and value not in ("", [], {})}
    width = max((len(name) for name in shown), default=0)
    for name, value in shown.items():
        say(f"{' ' * indent}{name.ljust(width)}  {_cell(value)}")


def contrast(left: str | None, right: str | None, width: int) -> tuple[str, str]:
    """Two values cut to `width` so that the part in which they differ is seen; a dash for an absent one."""
    shown = [" ".join(value.split()) if value is not None else "-" for value in (left, right)]
    common = next((i for i, pair in enumerate(zip(*shown, strict=False)) if len(set(pair)) > 1), 0)
    if max(map(len, shown)) > width and common > width // 2:
        shown = [f"…{value[common - 12 :]}" for value in shown]
    return shorten(shown[0], width), shorten(shown[1], width)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return " ".join(f"{key}={_cell(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(_cell(item) for item in value)
    return " ".join(str(value).split())


def seconds(value: float) -> str:
    """A duration: 0.4 s, 12 s, 3 min, 5 h, 2 d."""
    if value < 10:
        return f"{max(value, 0):.1f} s"
    for limit, unit, length in ((120, "s", 1), (7200, "min", 60), (172_800, "h", 3600)):
        if value < limit:
            return f"{value / length:.0f} {unit}"
    return f"{value / 86_400:.0f} d"


def age(moment: float | None, now: float | None = None) -> str:
    """How long ago a time, in seconds since the epoch, was."""
    return "" if moment is None else f"{seconds((time.time() if now is None else now) - moment)} ago"


def clock(moment: float | None) -> str | None:
    """A time in seconds since the epoch as local date and time."""
    if moment is None:
        return None
    return datetime.fromtimestamp(moment).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
