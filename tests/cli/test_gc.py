"""gc, pins, retention and trash as a person uses them."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.custody import users
from mutoscope.platform.refs import ArtifactRef
from tests.cli.conftest import Command
from tests.support.collecting import DAY, Holdings
from tests.support.records import a_spec, claim


@pytest.fixture
def held(catalog: Catalog, store: ArtifactStore) -> Holdings:
    return Holdings(catalog, store)


@pytest.fixture
def latent(held: Holdings) -> ArtifactRef:
    """Old, made by a workflow, and a replay could make it again in half a second."""
    within = held.catalog.workflows.start("image_video.t2i_i2v", {})
    spec = a_spec("key", key_parts={"card": "toy-card"}, workflow_run_id=within)
    run = held.catalog.runs.enqueue(spec, present=held.store.contains).run
    claim(held.catalog)
    ref = held.put("latent " * 100)
    held.catalog.runs.succeed(run.id, "worker-a", {"latent": ref}, {"denoise": 0.5})
    held.catalog.workflows.finish(within, "succeeded")
    held.age(ref, 10 * DAY)
    return ref


SCRATCH = ("retention", "add", "scratch", "--kind", "latent", "--workflow", "image_video.t2i_i2v")


def test_a_round_from_rule_to_removal(held: Holdings, latent: ArtifactRef, mutoscope: Command) -> None:
    film = held.make("film", "video", age=10 * DAY)
    assert mutoscope("gc", "--dry-run").out == "nothing would go\nin the trash already: nothing\n"
    assert mutoscope("gc", "--why", str(latent)).out.splitlines() == [
        f"{latent} is kept by",
        "  no rule speaks of latent made by image_video.t2i_i2v",
    ]
    assert mutoscope(*SCRATCH, "--keep", "7d").out == (
        "rule scratch keeps 7 d, then latent of image_video.t2i_i2v may go\n"
        "`mutoscope gc --dry-run` shows what that is\n"
    )
    assert mutoscope("gc", "--dry-run").out.splitlines() == [
        "WOULD GO  COUNT  SIZE     CAN BE MADE AGAIN",
        "latent    1      6.8 KiB  1",
        "in all 1, 6.8 KiB",
        "",
        "LARGEST              SIZE     TO MAKE AGAIN  PER SECOND",
        f"{latent}  6.8 KiB  0.5 s          13.7 KiB",
        "",
        "FIRST TO GO          SIZE     TO MAKE AGAIN  PER SECOND",
        f"{latent}  6.8 KiB  0.5 s          13.7 KiB",
        "in the trash already: nothing",
    ]
    assert mutoscope("gc", "--why", str(latent)).out == (
        f"{latent} is kept by nothing: the next collection takes it\n"
    )

    assert mutoscope("gc").out == "1 moved to the trash, 6.8 KiB\n"
    assert held.states(latent, film) == ["tombstone, in the trash", "present"]
    assert "; it can be brought back until " in mutoscope("gc", "--why", str(latent)).out
    assert str(latent) in mutoscope("lineage", str(latent)).out, "lineage still answers"

    assert f"`mutoscope trash restore {latent}`" in mutoscope("show", str(latent)).out
    assert mutoscope("trash", "list").out.splitlines()[1].startswith(f"{latent}  6.8 KiB")
    assert mutoscope("gc", "--dry-run").out == "nothing would go\nin the trash already: 1, 6.8 KiB\n"
    assert mutoscope("gc", "--dry-run", "--grace", "0s").out.splitlines()[1:] == [
        "in the trash already: 1, 6.8 KiB",
        "in the trash for longer than 0s, to be removed for good: 1, 6.8 KiB",
    ]
    assert mutoscope("trash", "restore", str(latent)).out == f"{latent} is back, 6.8 KiB\n"
    assert mutoscope("trash", "restore", str(latent)).out == f"{latent} was not in the trash: nothing to do\n"

    held.age(latent, 10 * DAY)
    at_once = "without a grace period, what would go is removed for good at once"
    assert mutoscope("gc", "--dry-run", "--grace", "0s").out.splitlines()[-1] == at_once
    assert mutoscope("gc", "--grace", "0s").out == (
        "1 moved to the trash, 6.8 KiB\n1 removed for good, 6.8 KiB\n"
    )
    assert mutoscope("gc").out == "nothing to collect\n"
    assert "its bytes were removed for good" in mutoscope("gc", "--why", str(latent)).out
    assert re.search(r"^bytes +gone, by collection", mutoscope("show", str(latent)).out, re.MULTILINE)
    gone = mutoscope("trash", "restore", str(latent))
    assert (gone.code, gone.err.count("\n")) == (1, 1)
    assert "replay the run that made it" in gone.err


def test_emptying_the_trash_does_not_wait_for_the_grace(
    held: Holdings, latent: ArtifactRef, mutoscope: Command
) -> None:
    mutoscope(*SCRATCH, "--keep", "7d")
    mutoscope("gc")
    assert mutoscope("trash", "empty", "--older-than", "1h").out == "nothing to remove\n"
    assert mutoscope("trash", "empty").out == "1 removed for good, 6.8 KiB\n"
    assert mutoscope("trash", "list").out == "the trash is empty\n"
    assert held.states(latent) == ["tombstone"]


def test_pins(held: Holdings, latent: ArtifactRef, mutoscope: Command) -> None:
    assert mutoscope("pins").out == "nothing is pinned\n"
    pinned = mutoscope("pin", str(latent), "--name", "release-3", "--with-inputs", "--note", "for the fair")
    assert pinned.out == f"{latent} is kept as release-3, with everything it came from\n"
    assert mutoscope("pins").out.splitlines()[1].split()[:3] == ["release-3", str(latent), "too"]
    (listed,) = json.loads(mutoscope("pins", "--json").out)
    assert (listed["name"], listed["artifact"], listed["note"]) == (
        "release-3",
        latent.to_dict(),
        "for the fair",
    )
    mutoscope(*SCRATCH, "--keep", "7d")
    assert mutoscope("gc", "--grace", "0s").out == "nothing to collect\n"
    taken = mutoscope("pin", str(latent), "--name", "release-3")
    assert (taken.code, "a pin of that name keeps" in taken.err) == (2, True)
    assert mutoscope("unpin", "release-3").out == f"{latent} is no longer kept as release-3\n"
    assert mutoscope("unpin", "release-3").code == 2
    assert mutoscope("gc").out == "1 moved to the trash, 6.8 KiB\n"


def test_rules_are_listed_and_removed(catalog: Catalog, mutoscope: Command) -> None:
    assert mutoscope("retention", "list").out == "no rules: everything is kept\n"
    mutoscope(*SCRATCH, "--keep", "7d")
    mutoscope("retention", "add", "rest", "--keep", "90d")
    assert [line.split() for line in mutoscope("retention", "list").out.splitlines()[1:]] == [
        ["rest", "any", "any", "90", "d"],
        ["scratch", "latent", "image_video.t2i_i2v", "7", "d"],
    ]
    assert json.loads(mutoscope("retention", "remove", "rest", "--json").out)["keep_seconds"] == 90 * DAY
    assert mutoscope("retention", "remove", "rest").code == 2
    remedy = "use a number and a unit (s, m, h, d, w) such as 90s or 7d"
    for wrong in ("7", "d", "-1d", "seven days", "1e9d"):
        refused = mutoscope(*SCRATCH, f"--keep={wrong}")
        assert (refused.code, refused.err.splitlines()) == (
            2,
            [f"error: keep={wrong!r} is not valid: {remedy}"],
        )
    assert mutoscope("retention", "add", "films", "--kind", "film", "--keep", "7d").code == 2


def test_a_rule_names_a_workflow_as_run_does(catalog: Catalog, mutoscope: Command) -> None:
    named = ("retention", "add", "films", "--workflow", "text_to_video", "--keep", "7d", "--json")
    assert json.loads(mutoscope(*named).out)["workflow"] == "image_video.t2i_i2v", "as rows name it"
    refused = mutoscope("retention", "add", "typo", "--workflow", "text_to_vidoe", "--keep", "7d")
    assert (refused.code, "use one of" in refused.err) == (2, True)
    catalog.workflows.start("mine.retired", {})
    retired = ("retention", "add", "old", "--workflow", "mine.retired", "--keep", "7d")
    assert mutoscope(*retired).code == 0, "it has run, and is declared no more"


def test_bytes_without_a_record_are_counted_when_they_go(held: Holdings, mutoscope: Command) -> None:
    stray = held.put("stray")
    path = held.store.local_path(stray.digest)
    assert path is not None
    os.utime(path, (1, 1))
    assert mutoscope("gc", "--grace", "1h").out == "1 without a record, moved to the trash, 50 B\n"
    (trashed,) = held.store.trashed()
    assert mutoscope("gc", "--dry-run", "--grace", "1h").out.splitlines()[1:] == [
        "in the trash already: 1, 50 B"
    ]
    os.utime(urlsplit(held.store.root_url).path + "/" + trashed.name, (1, 1))
    assert mutoscope("gc", "--dry-run", "--grace", "1h").out.splitlines()[-1] == (
        "in the trash for longer than 1h, to be removed for good: 1, 50 B"
    )
    assert mutoscope("gc", "--grace", "1h").out == "1 removed for good, 50 B\n"


def test_everything_speaks_json(held: Holdings, latent: ArtifactRef, mutoscope: Command) -> None:
    assert json.loads(mutoscope(*SCRATCH, "--keep", "7d", "--json").out)["name"] == "scratch"
    looked = json.loads(mutoscope("gc", "--dry-run", "--json").out)
    assert looked["total"] == {"count": 1, "size": latent.size}
    assert looked["removable"] == {"count": 0, "size": 0}
    assert looked["replayable"][0]["bytes_per_second"] == latent.size / 0.5
    assert json.loads(mutoscope("gc", "--why", str(latent), "--json").out)["reasons"] == []
    assert json.loads(mutoscope("gc", "--json").out)["counts"]["collected"] == 1
    (trashed,) = json.loads(mutoscope("trash", "list", "--json").out)
    assert trashed["digest"] == latent.digest
    assert json.loads(mutoscope("trash", "restore", str(latent), "--json").out) == [latent.to_dict()]
    assert json.loads(mutoscope("trash", "empty", "--json").out)["state"] == "finished"


@pytest.fixture
def second(tmp_path: Path, empty_catalog: Path) -> Iterator[Catalog]:
    """Another catalog."""
    shutil.copy(empty_catalog, tmp_path / "second.db")
    opened = Catalog.open(f"sqlite:///{tmp_path / 'second.db'}")
    yield opened
    opened.close()


def test_a_store_that_another_catalog_uses(
    held: Holdings, latent: ArtifactRef, second: Catalog, mutoscope: Command
) -> None:
    mutoscope(*SCRATCH, "--keep", "7d")
    Holdings(second, held.store).make("latent " * 100)
    users.register(second, held.store)
    refused = mutoscope("gc", "--grace", "0s")
    assert refused.code == 2
    assert f"is also used by {second.url} on" in refused.err
    assert second.url in mutoscope("gc", "--dry-run").err
    assert mutoscope("gc", "--grace", "0s", "--also", second.url).out == "1 moved to the trash, 6.8 KiB\n"
    assert held.store.contains(latent.digest), "the other catalog has it"
    assert mutoscope("gc", "--forget", second.identity()[:8]).out.startswith(f"forgotten: {second.url} on")
    assert mutoscope("gc", "--grace", "0s").out == "1 removed for good, 6.8 KiB\n"
