"""The fsck command: what a person reads, and the exit code that a script goes by."""

from __future__ import annotations

import json
import re

import pytest

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.cli import fsck
from tests.cli.conftest import Command
from tests.support.damage import World, flip, make_world, remove, store_bytes
from tests.support.text import assert_text


@pytest.fixture
def world(catalog: Catalog, store: ArtifactStore) -> World:
    return make_world(catalog, store)


def told(command: Command, *arguments: str) -> tuple[int, str]:
    result = command("fsck", *arguments)
    assert result.err == ""
    return result.code, re.sub(r"in [\d.]+ s", "in * s", result.out)


def test_from_clean_through_damage_to_clean(world: World, mutoscope: Command) -> None:
    code, text = told(mutoscope)
    assert (code, text) == (0, "checked 5 artifacts and 5 objects, 1.6 KiB read in * s\nclean\n")
    flip(world.store, world.video.digest)
    code, text = told(mutoscope)
    assert code == 1
    assert_text(
        text,
        """
        fault  damaged-bytes        video:*** has other bytes in the store than its digest says
        checked 5 artifacts and 5 objects, 1.6 KiB read in * s
        1 fault left: 1 damaged-bytes (320 B)
          damaged-bytes: `mutoscope fsck --repair` moves the object to quarantine; takes sound bytes from the trash, or marks the row as lost
        """,  # noqa: E501
    )
    code, text = told(mutoscope, "--repair")
    assert code == 0
    assert_text(
        text,
        """
        fault  damaged-bytes        video:*** has other bytes in the store than its digest says
               repaired             moved to quarantine, and marked as lost, with an incident
               make it again        mutoscope replay video:***
        note   quarantined          quarantine/***… was set aside because it was damaged (not made again since)
        checked 5 artifacts and 5 objects, 1.6 KiB read in * s
        1 fault repaired: 1 damaged-bytes (320 B)
        1 note: 1 quarantined (320 B)
        clean: nothing is left to repair
        """,  # noqa: E501
    )
    assert told(mutoscope, "--fast")[0] == 0


def test_json_lists_everything(world: World, mutoscope: Command) -> None:
    remove(world.store, world.image.digest)
    found = json.loads(told(mutoscope, "--fast", "--json")[1])
    assert (found["clean"], found["left"], found["artifacts"]) == (False, {"missing-bytes": 1}, 5)
    (one,) = found["findings"]
    assert (one["rule"], one["level"], one["digest"]) == ("missing-bytes", "fault", world.image.digest)
    code, text = told(mutoscope, "--repair", "--json")
    (one,) = json.loads(text)["findings"]
    assert (code, one["did"]) == (0, "marked as lost, with an incident")
    assert one["remake"] == f"mutoscope replay {world.image}"


def test_many_of_a_kind_are_counted(
    world: World, mutoscope: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fsck, "SHOWN_PER_CODE", 3)
    for n in range(8):
        ref = store_bytes(world.store, f"gone {n}")
        world.catalog.artifacts.record(ref)
        remove(world.store, ref.digest)
    lines = told(mutoscope)[1].splitlines()
    assert len([line for line in lines if line.startswith("fault  missing-bytes")]) == 3
    assert "...    missing-bytes        and 5 more (--json lists all)" in lines
    assert len(json.loads(told(mutoscope, "--json")[1])["findings"]) == 8
