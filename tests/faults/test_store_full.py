"""A disk that is full: the put is refused in one line, nothing half-written remains, what was there is fine.

The disk is a file system of 8 MiB in memory. Only root may mount one; anybody else meets the same end of a
write through the limit on the size of files.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.errors import StoreUnwritable
from mutoscope.platform.refs import ArtifactRef
from tests.faults.stores import assert_repeatable, assert_sound
from tests.support.places import FolderPlace
from tests.support.writers import FORMS, Payload, Writer, put

DISK_BYTES = 8 << 20
FITS, TOO_LARGE = Payload(1, 1 << 20), 9 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """The mount point of a small file system."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("file systems cannot be mounted here; tests/artifacts/test_folder limits a file's size")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def refused(writer: Writer) -> bool:
    """Whether it ended with the one line that says what to do."""
    code, lines = writer.wait(), writer.log.splitlines()
    assert code == StoreUnwritable.exit_code, writer.log
    assert len(lines) == 1
    return "cannot be written (No space left on device): free space" in lines[0]


@pytest.mark.parametrize("form", FORMS)
def test_a_put_that_does_not_fit_leaves_nothing(disk: Path, tmp_path: Path, form: str) -> None:
    place = FolderPlace(disk / "store")
    store = ArtifactStore.open(place.url)
    put(store, FITS)
    free = os.statvfs(disk).f_bavail

    payload = Payload(2, TOO_LARGE, form)
    with Writer(place.url, [payload], tmp_path / "writer") as writer:
        assert refused(writer)
    assert place.unfinished() == 0
    assert os.statvfs(disk).f_bavail == free, "every byte was given back"
    assert_sound(store, [FITS.digest])
    assert set(store.digests()) == {FITS.digest}
    assert_repeatable(store, [FITS, Payload(3, 1 << 20, form)])


def test_a_disk_that_fills_up(disk: Path, tmp_path: Path) -> None:
    """Puts until none fits: the ones acknowledged are there, the first refused one is not."""
    place = FolderPlace(disk / "store")
    payloads = [Payload(seed, 300_000) for seed in range(40)]
    with Writer(place.url, payloads, tmp_path / "writer") as writer:
        assert refused(writer)
    store = ArtifactStore.open(place.url)
    assert 20 < len(writer.acknowledged) < 28
    assert set(store.digests()) == set(writer.acknowledged)
    assert_sound(store, writer.acknowledged)
    assert place.unfinished() == 0
    for digest in writer.acknowledged[:5]:
        place.lose(digest)
    assert_repeatable(store, payloads[:5])


def test_a_full_disk_cannot_repair_but_loses_nothing_more(disk: Path, tmp_path: Path) -> None:
    place = FolderPlace(disk / "store")
    store = ArtifactStore.open(place.url)
    damaged = Payload(1, 3 << 20)
    put(store, damaged)
    place.overwrite(damaged.digest, lambda data: data[:-1] + b"!")
    filler = disk / "filler"
    filler.write_bytes(bytes(DISK_BYTES - (4 << 20)))
    with Writer(place.url, [damaged], tmp_path / "writer") as writer:
        assert refused(writer)
    assert store.verify(damaged.digest) == "damaged"
    assert place.unfinished() == 0
    filler.unlink()
    assert_repeatable(store, [damaged])
    assert_sound(store, [damaged.digest])


def test_the_catalog_is_not_affected(disk: Path, catalog: Catalog, tmp_path: Path) -> None:
    """Bytes come before rows: what was refused has no row, and the catalog goes on."""
    store = ArtifactStore.open((disk / "store").as_uri())

    def record(payload: Payload) -> ArtifactRef:
        ref = store.put(payload.content, kind="blob", media_type="application/octet-stream")
        catalog.artifacts.record(ref)
        return ref

    before = record(FITS)
    with pytest.raises(StoreUnwritable, match="No space left on device"):
        record(Payload(2, TOO_LARGE))
    after = record(Payload(3, 1000))
    assert {row.digest for row in catalog.artifacts.list(limit=10)} == {before.digest, after.digest}
