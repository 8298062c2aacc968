"""Fault points: the syntax, and that a fault fires when its turn has come and not before."""

from __future__ import annotations

from pathlib import Path

import pytest

from mutoscope.platform import faults
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.faults import POINTS, FaultPoints, InjectedError

ROOT = Path(__file__).parents[1]


def test_fires_at_the_nth_passing_and_leaves_a_mark(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    with faults.armed("worker.step:raise@3", marker):
        faults.hit("worker.step")
        faults.hit("worker.after_claim")
        faults.hit("worker.step")
        assert not marker.exists()
        with pytest.raises(InjectedError, match=r"at worker\.step"):
            faults.hit("worker.step")
        assert marker.read_text() == "worker.step\n"
        faults.hit("worker.step")
    faults.hit("worker.step")


def test_a_process_is_armed_by_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "_process", None)
    monkeypatch.setenv("MUTOSCOPE_FAULT", "worker.step:raise")
    with pytest.raises(InjectedError):
        faults.hit("worker.step")
    monkeypatch.setattr(faults, "_process", None)


def test_nothing_armed_nothing_happens() -> None:
    points = FaultPoints({})
    for point in POINTS:
        points.hit(point)


@pytest.mark.parametrize(
    "text", ["worker.stop:kill", "worker.step", "worker.step:explode", "worker.step:kill@x"]
)
def test_a_fault_that_could_not_fire_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameter, match="MUTOSCOPE_FAULT"):
        FaultPoints({"MUTOSCOPE_FAULT": text})


def test_every_point_is_passed_somewhere() -> None:
    folders = ("platform", "workers", "flows")
    code = "".join(path.read_text() for folder in folders for path in (ROOT / folder).rglob("*.py"))
    # The collector takes the function that it calls at its points, so that tests can stand there.
    passed = {point for point in POINTS if f'hit("{point}")' in code or f'_at("{point}")' in code}
    assert passed == POINTS
