"""The soak's judge tells a leak from a process that settles and breathes."""

from __future__ import annotations

import math
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.fire.memory import Record
from tests.fire.plot import draw

HOUR_S = 3600.0


def recorded(mib: list[float], seconds: float = HOUR_S / 2) -> Record:
    record = Record()
    for number, each in enumerate(mib):
        record.add(seconds * number / (len(mib) - 1), each)
    return record


def test_a_process_that_fills_its_caches_and_breathes_is_flat() -> None:
    start = [100.0 + 200 * min(1.0, n / 60) for n in range(360)]
    trend = recorded([mib + 6 * math.sin(n / 3) for n, mib in enumerate(start)]).trend()
    assert trend is not None
    assert trend.is_flat
    assert trend.mib == pytest.approx(300, abs=6)
    assert trend.slope_mib_per_hour == pytest.approx(0, abs=3)


def test_a_leak_is_none_of_that() -> None:
    # 300 MiB and 120 MiB an hour: the halves of the last 20 minutes lie 10 minutes apart.
    trend = recorded([300.0 + 60 * n / 359 for n in range(360)]).trend()
    assert trend is not None
    assert not trend.is_flat
    assert trend.slope_mib_per_hour == pytest.approx(120, rel=0.02)
    assert trend.growth_mib == pytest.approx(20, rel=0.02)


def test_too_little_says_nothing() -> None:
    assert recorded([1.0, 2.0, 3.0]).trend() is None


def test_the_plot_is_a_picture_with_a_line_per_process(tmp_path: Path) -> None:
    path = tmp_path / "memory.svg"
    draw({"east/worker-1": recorded([1.0, 2.0, 3.0]), "s3": recorded([3.0, 2.0])}, path, "Memory & time")
    lines = ElementTree.parse(path).findall("{http://www.w3.org/2000/svg}polyline")
    assert [len(line.attrib["points"].split()) for line in lines] == [3, 2]
