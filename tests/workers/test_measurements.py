"""What was measured and kept: found again, and not believed if it is damaged or another's."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from mutoscope.workers import measurements
from mutoscope.workers.measurements import Measurements
from tests.support.deadline import until

PARTS = {"card": "flux-t2i", "most": 16, "shape": (1, 2)}
CONTENT = {"mode": "bitwise", "sizes": [1, 2]}


def only_file(root: Path) -> Path:
    (path,) = root.glob("*.json")
    return path


def test_what_was_kept_is_found_under_its_parts_alone(tmp_path: Path) -> None:
    kept = Measurements(tmp_path / "cache")
    assert kept.find(PARTS) is None
    kept.keep(PARTS, CONTENT)
    assert Measurements(tmp_path / "cache").find(PARTS) == CONTENT
    assert kept.find({**PARTS, "most": 8}) is None
    kept.keep(PARTS, {"mode": "off"})
    assert kept.find(PARTS) == {"mode": "off"}


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def edited(path: Path) -> None:
    path.write_text(path.read_text().replace('"sizes": [1, 2]', '"sizes": [1, 3]'))


def renamed(path: Path) -> None:
    stored = json.loads(path.read_text())
    path.write_text(json.dumps({**stored, "parts": {**stored["parts"], "most": 8}}))


def emptied(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [truncated, edited, renamed, emptied])
def test_damage_is_told_and_not_believed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Any
) -> None:
    kept = Measurements(tmp_path)
    kept.keep(PARTS, CONTENT)
    before = only_file(tmp_path).read_bytes()
    damage(only_file(tmp_path))
    assert only_file(tmp_path).read_bytes() != before
    assert kept.find(PARTS) is None
    assert "not believed" in caplog.text
    kept.keep(PARTS, CONTENT)
    assert kept.find(PARTS) == CONTENT


def test_a_disk_that_refuses_costs_nothing_but_the_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    kept = Measurements(tmp_path / "file" / "cache")
    with kept.alone(PARTS):
        kept.keep(PARTS, CONTENT)
    assert "not kept for the next start" in caplog.text
    assert Measurements(None).find(PARTS) is None


def test_one_measures_and_the_others_wait_for_what_it_finds(tmp_path: Path) -> None:
    first, second = Measurements(tmp_path), Measurements(tmp_path)
    entered, found = threading.Event(), []

    def follow() -> None:
        entered.set()
        with second.alone(PARTS):
            found.append(second.find(PARTS))

    with first.alone(PARTS), first.alone({**PARTS, "most": 8}):
        thread = threading.Thread(target=follow)
        thread.start()
        entered.wait(30)
        first.keep(PARTS, CONTENT)
        assert found == []
    thread.join(30)
    assert found == [CONTENT]


def test_one_that_stands_still_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(measurements, "PATIENCE_S", 0.05)
    with Measurements(tmp_path).alone(PARTS), Measurements(tmp_path).alone(PARTS):
        until(lambda: "not waited for" in caplog.text, "the line")
