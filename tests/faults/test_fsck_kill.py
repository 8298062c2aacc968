"""Killing a repair anywhere, and repairing beside others: nothing sound is lost, the next one finishes it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.custody.fsck import Repair, fsck
from tests.support import racers
from tests.support.damage import World, flip, make_world, remove, store_bytes
from tests.support.parts import few_now

COMMAND = [sys.executable, "-m", "mutoscope.platform.cli.main", "fsck", "--repair"]
# Each fault is repaired past the first point, each damaged object past the second, each lost one past the
# third.
PASSES = {"fsck.before_repair": 4, "fsck.quarantined": 2, "fsck.marked": 3}


@pytest.fixture
def world(catalog: Catalog, store: ArtifactStore) -> World:
    """An image whose bytes are flipped while sound ones lie in the trash, a damaged video, lost pictures."""
    world = make_world(catalog, store)
    for name in ("lost-1", "lost-2"):
        catalog.artifacts.record(store_bytes(store, name))
        remove(store, store_bytes(store, name).digest)
    store.trash(world.image.digest)
    store_bytes(store, "image")
    flip(store, world.image.digest)
    flip(store, world.video.digest)
    return world


def faults(found: Iterator[Repair]) -> list[str]:
    return [repair.finding.rule.code for repair in found if repair.finding.is_fault and repair.did is None]


@pytest.mark.parametrize(
    ("point", "nth"),
    few_now(((p, n + 1) for p, times in PASSES.items() for n in range(times)), lambda point, nth: nth == 2),
)
def test_killed_at_a_named_point(world: World, home: Path, tmp_path: Path, point: str, nth: int) -> None:
    marker = tmp_path / "fired"
    environment = {
        **os.environ,
        "MUTOSCOPE_HOME": str(home),
        "MUTOSCOPE_FAULT": f"{point}:kill@{nth}",
        "MUTOSCOPE_FAULT_MARKER": str(marker),
    }
    killed = subprocess.run(COMMAND, env=environment, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert marker.read_text() == f"{point}\n", "the fault must have fired"

    assert faults(fsck(world.catalog, world.store, repair=True)) == []
    assert faults(fsck(world.catalog, world.store)) == []
    assert world.store.get(world.image.digest) == b"image" * 64, "the trash held it"
    assert world.catalog.artifacts.state(world.image.digest) == "present"
    assert world.catalog.artifacts.state(world.video.digest) == "tombstone"
    assert {found.digest for found in world.store.quarantined()} == {world.image.digest, world.video.digest}
    counted = world.catalog.incidents.counts()
    assert sum(counted.values()) == 3, "each lost artifact has one incident, however often it was looked at"


def test_eight_repairs_at_once(world: World, catalog_url: str) -> None:
    outcomes = racers.race(racers.repair, [(catalog_url, world.store.root_url)] * 8)
    assert all(left == [] for left in outcomes)
    assert faults(fsck(world.catalog, world.store)) == []
    assert world.store.get(world.image.digest) == b"image" * 64
    assert sum(world.catalog.incidents.counts().values()) == 3


def test_repairs_beside_live_writers_find_nothing(world: World, catalog_url: str) -> None:
    list(fsck(world.catalog, world.store, repair=True))
    writers = [(catalog_url, world.store.root_url, f"writer {n}", 60) for n in range(5)]
    checks = [(catalog_url, world.store.root_url, "check", 12)] * 3
    found = racers.race(racers.write_or_check, [*writers, *checks])
    assert [codes for codes in found if codes] == []
    assert faults(fsck(world.catalog, world.store)) == []
    assert sum(world.catalog.incidents.counts().values()) == 3, "those of the world, from before"
