"""Fault points: the syntax, and that a fault fires when its turn has come and not before."""

from __future__ import annotations

from pathlib import Path

import pytest

from mutoscope.platform.errors import InvalidParameter
from mutoscope.workers.faults import POINTS, FaultPoints, InjectedError

SOURCES = Path(__file__).parents[2] / "workers"


def test_fires_at_the_nth_passing_and_leaves_a_mark(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    faults = FaultPoints({"MUTOSCOPE_FAULT": "worker.step:raise@3", "MUTOSCOPE_FAULT_MARKER": str(marker)})
    faults.hit("worker.step")
    faults.hit("worker.after_claim")
    faults.hit("worker.step")
    assert not marker.exists()
    with pytest.raises(InjectedError, match=r"at worker\.step"):
        faults.hit("worker.step")
    assert marker.read_text() == "worker.step\n"
    faults.hit("worker.step")


def test_nothing_armed_nothing_happens() -> None:
    faults = FaultPoints({})
    for point in POINTS:
        faults.hit(point)


@pytest.mark.parametrize(
    "text", ["worker.stop:kill", "worker.step", "worker.step:explode", "worker.step:kill@x"]
)
def test_a_fault_that_could_not_fire_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameter, match="MUTOSCOPE_FAULT"):
        FaultPoints({"MUTOSCOPE_FAULT": text})


def test_every_point_is_passed_somewhere() -> None:
    code = "".join(path.read_text() for path in SOURCES.glob("*.py"))
    assert {point for point in POINTS if f'hit("{point}")' not in code} == set()
