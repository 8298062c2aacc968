"""Lines over time as an SVG file, by hand: one plot does not deserve a plotting library."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape

from tests.fire.memory import Record

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _LEGEND = 900, 460, 60, 40, 230
_COLOURS = ("#1b6ca8", "#d1495b", "#2e8b57", "#edae49", "#6a4c93", "#00798c", "#8d6a4f", "#444444", "#c77dff")


def draw(records: Mapping[str, Record], path: Path, title: str) -> None:
    """Memory in MiB over minutes, a line per process."""
    longest = max(record.seconds[-1] for record in records.values() if record.seconds)
    most = max(max(record.mib) for record in records.values() if record.mib) * 1.05
    wide, high = _WIDTH - _LEFT - _LEGEND, _HEIGHT - _BOTTOM - 30

    def x(seconds: float) -> float:
        return _LEFT + seconds / longest * wide

    def y(mib: float) -> float:
        return 30 + high - mib / most * high

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        f'font-size="12"><rect width="100%" height="100%" fill="white"/>'
        f'<text x="{_LEFT}" y="18">{escape(title)}</text>'
    ]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        mib, seconds = share * most, share * longest
        parts.append(
            f'<path d="M{_LEFT} {y(mib):.1f}h{wide}" stroke="#ddd"/>'
            f'<text x="{_LEFT - 6}" y="{y(mib) + 4:.1f}" text-anchor="end">{mib:.0f}</text>'
            f'<text x="{x(seconds):.1f}" y="{_HEIGHT - 18}" text-anchor="middle">{seconds / 60:.1f}</text>'
        )
    parts.append(f'<text x="{_LEFT + wide / 2:.0f}" y="{_HEIGHT - 4}" text-anchor="middle">minutes</text>')
    for number, (name, record) in enumerate(sorted(records.items())):
        colour = _COLOURS[number % len(_COLOURS)]
        points = " ".join(f"{x(s):.1f},{y(m):.1f}" for s, m in zip(record.seconds, record.mib, strict=True))
        at = 40 + 16 * number
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
            f'<path d="M{_WIDTH - _LEGEND + 14} {at - 4}h18" stroke="{colour}" stroke-width="3"/>'
            f'<text x="{_WIDTH - _LEGEND + 38}" y="{at}">{escape(name)} (MiB)</text>'
        )
    path.write_text("".join(parts) + "</svg>\n")
