"""Room for cached weights: what is held stays, what was used longest ago goes first."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.artifacts.components import put_component
from mutoscope.workers import cache_room
from mutoscope.workers.cache_room import held, make_room
from mutoscope.workers.weight_cache import WeightCache
from tests.support.safetensors import checkpoint, saved


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache on a disk of 1,000 bytes, of which each folder takes 100 and others 600."""
    root = tmp_path / "cache"

    def usage(path: Path) -> Usage:
        used = 600 + 100 * sum(1 for _ in path.iterdir())
        return Usage(1000, used, 1000 - used)

    monkeypatch.setattr(cache_room.shutil, "disk_usage", usage)
    for age, name in enumerate(["newest", "middle", "oldest"]):
        (root / name).mkdir(parents=True)
        (root / name / "weights").touch()
        os.utime(root / name, (1000 - age, 1000 - age))
    return root


def names(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()}


# 100 bytes are free and 50 are the reserve.
@pytest.mark.parametrize(
    ("needed", "left"),
    [
        (50, {"newest", "middle", "oldest"}),
        (51, {"newest", "middle"}),
        (150, {"newest", "middle"}),
        (151, {"newest"}),
        (10_000, set()),
    ],
)
def test_only_as_much_goes_as_is_needed_oldest_first(disk: Path, needed: int, left: set[str]) -> None:
    make_room(disk, needed)
    assert names(disk) == left


def test_leftovers_of_killed_workers_go_first(disk: Path) -> None:
    (disk / ".staging").mkdir()
    make_room(disk, 50)
    assert names(disk) == {"newest", "middle", "oldest"}


def test_what_is_held_stays(disk: Path) -> None:
    with held(disk / "oldest") as there:
        assert there
        make_room(disk, 10_000)
        assert names(disk) == {"oldest"}
    make_room(disk, 10_000)
    assert names(disk) == set()


@pytest.mark.parametrize(("owner", "call"), [(os, "open"), (Path, "rename")])
def test_what_is_another_users_stays(
    disk: Path, monkeypatch: pytest.MonkeyPatch, owner: object, call: str
) -> None:
    real = getattr(owner, call)

    def refusing(path: Path, *arguments: object, **named: object) -> object:
        if Path(path).name == "oldest":
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path))
        return real(path, *arguments, **named)

    monkeypatch.setattr(owner, call, refusing)
    make_room(disk, 51)
    assert names(disk) == {"newest", "oldest"}


def test_what_another_process_holds_stays_until_it_is_gone(disk: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from mutoscope.workers.cache_room import held\n"
        "with held(Path(sys.argv[1])) as there: print(there, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, disk / "oldest"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"True\n"
        make_room(disk, 10_000)
        assert names(disk) == {"oldest"}
        process.kill()
        process.wait()
    make_room(disk, 10_000)
    assert names(disk) == set()


def test_one_that_is_gone_cannot_be_held(disk: Path) -> None:
    with held(disk / "never") as there:
        assert not there


def test_a_folder_removed_at_the_last_moment_is_built_again(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"model.safetensors": saved(checkpoint(1))}
    digest = put_component(store, "net", files).manifest.digest
    cache = WeightCache(store, tmp_path / "cache")
    folder, removed = cache.folder, []

    def removing(wanted: str) -> Path:
        path = folder(wanted)
        if not removed:
            removed.append(cache_room._remove(path))
        return path

    monkeypatch.setattr(cache, "folder", removing)
    with cache.hold(digest) as path:
        assert removed == [True]
        assert (path / "model.safetensors").read_bytes() == files["model.safetensors"]
        make_room(tmp_path / "cache", 1 << 62)
        assert (path / "model.safetensors").exists()


def test_a_staging_folder_taken_for_a_leftover_is_begun_again(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = put_component(store, "net", {"model.safetensors": saved(checkpoint(1))}).manifest.digest
    mkdir, removed = Path.mkdir, []

    def removing(path: Path, *arguments: object, **named: object) -> None:
        mkdir(path, *arguments, **named)  # type: ignore[arg-type]
        if path.name.startswith(".") and not removed:
            removed.append(cache_room._remove(path))

    monkeypatch.setattr(Path, "mkdir", removing)
    folder = WeightCache(store, tmp_path / "cache").folder(digest)
    assert removed == [True]
    assert (folder / "model.safetensors").read_bytes() == saved(checkpoint(1))
