"""doctor: one line a check, with a remedy where something is amiss."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mutoscope.platform.artifacts.manifest import ComponentManifest, iter_members
from mutoscope.platform.cli import doctor, starter
from mutoscope.platform.cli.home import Home
from tests.cli.conftest import Command


def findings(mutoscope: Command) -> dict[str, dict[str, str]]:
    """The report by check; of several lines for one check, the worst."""
    worst: dict[str, dict[str, str]] = {}
    for finding in json.loads(mutoscope("doctor", "--json").out):
        order = ("ok", "warn", "fail").index
        known = worst.setdefault(finding["check"], finding)
        if order(finding["level"]) > order(known["level"]):
            worst[finding["check"]] = finding
    return worst


@pytest.fixture
def prepared(home: Path) -> Home:
    opened = Home()
    starter.prepare(opened, lambda line: None)
    return opened


def test_a_home_that_was_never_up(home: Path, mutoscope: Command) -> None:
    result = mutoscope("doctor")
    assert result.code == 1
    levels = {line.split()[1]: line.split()[0] for line in result.out.splitlines()}
    assert levels == {
        "python": "ok",
        "packages": "ok",
        "encoder": "ok",
        "home": "ok",
        "store": "ok",
        "server": "warn",
        "catalog": "fail",
    }
    assert "create it with `mutoscope up`" in result.out


def test_the_probe_leaves_nothing(prepared: Home, mutoscope: Command) -> None:
    before = {stored.digest for stored in prepared.store.inventory()}
    assert findings(mutoscope)["store"]["level"] == "ok"
    assert {stored.digest for stored in prepared.store.inventory()} == before
    assert list(prepared.store.trashed()) == []


def test_a_prepared_home_without_a_stack(prepared: Home, mutoscope: Command) -> None:
    levels = {check: finding["level"] for check, finding in findings(mutoscope).items()}
    assert (levels["catalog"], levels["weights"], levels["workers"]) == ("ok", "ok", "warn")
    assert mutoscope("doctor").code == 0, "a warning is no failure"


@pytest.mark.parametrize("damage", ["flipped", "missing"])
def test_damaged_weights_are_found(prepared: Home, mutoscope: Command, damage: str) -> None:
    version = prepared.catalog.weights.live("wan-i2v")["vae"]
    manifest = ComponentManifest.parse(prepared.store.get(version.digest))
    member = max(iter_members(manifest), key=lambda one: one.size or 0)
    path = prepared.store.local_path(member.digest)
    assert path is not None
    path.chmod(0o644)
    if damage == "missing":
        path.unlink()
    else:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    finding = findings(mutoscope)["weights"]
    assert finding["level"] == "fail"
    assert finding["detail"].startswith(f"wan-i2v: vae/{member.path}: ")
    assert "weights import" in finding["remedy"]


def test_a_check_that_trips_is_a_finding(
    prepared: Home, monkeypatch: pytest.MonkeyPatch, mutoscope: Command
) -> None:
    def broken(home: Home) -> None:
        raise OSError("the disk\nis gone")

    broken.__name__ = "_store"
    monkeypatch.setattr(doctor, "_store", broken)
    assert findings(mutoscope)["store"] == {
        "check": "store",
        "level": "fail",
        "detail": "the disk is gone",
        "remedy": "",
    }
