"""How the platform words sizes and long texts, the same in the terminal, on pages and in run names."""

from __future__ import annotations


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
