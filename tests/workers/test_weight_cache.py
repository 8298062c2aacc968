"""Pinned components on the local disk: verified, complete or absent, repaired."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mutoscope.platform.artifacts import ArtifactRef, ArtifactStore, manifest
from mutoscope.platform.artifacts.components import put_component
from mutoscope.platform.artifacts.manifest import ComponentManifest, ManifestFile
from mutoscope.platform.errors import ArtifactCorrupt, ArtifactMissing
from mutoscope.platform.ids import new_id, sha256
from mutoscope.workers import weight_cache
from mutoscope.workers.weight_cache import WeightCache
from tests.support.counting import counting
from tests.support.safetensors import checkpoint, saved

Put = Callable[[ArtifactStore], ArtifactRef]

FILES = {
    "config.json": b"{}",
    "shards/model-1.safetensors": saved(checkpoint(1)),
    "model.safetensors": saved(checkpoint(2, large=0)),
}


def put_split(store: ArtifactStore) -> ArtifactRef:
    return put_component(store, "net", FILES).manifest


def put_plain(store: ArtifactStore) -> ArtifactRef:
    """As the first format kept it: each file one object."""
    refs = {
        path: store.put(data, kind="blob", media_type="application/octet-stream")
        for path, data in FILES.items()
    }
    listed = ComponentManifest(
        "net", tuple(ManifestFile(path, ref.digest, ref.size) for path, ref in refs.items())
    )
    return store.put(listed.to_bytes(), kind=manifest.KIND, media_type=manifest.MEDIA_TYPE)


def contents(folder: Path) -> dict[str, bytes]:
    return {path: (folder / path).read_bytes() for path in FILES}


def damage(path: Path) -> None:
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"!")


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    url = f"file://{tmp_path}/store" if request.param == "file" else f"memory://{new_id()}"
    return ArtifactStore.open(url)


@pytest.fixture
def files(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore.open(f"file://{tmp_path}/store")


@pytest.fixture(params=[put_split, put_plain], ids=["split", "plain"])
def put(request: pytest.FixtureRequest) -> Put:
    """Each way in which a component may be stored."""
    keep: Put = request.param
    return keep


def object_of(store: ArtifactStore, path: str) -> Path:
    """Where the store keeps a file of the component."""
    digest = hashlib.sha256(FILES[path]).hexdigest()
    found = store.local_path(digest)
    assert found is not None
    return found


def test_a_component_becomes_a_folder(store: ArtifactStore, tmp_path: Path, put: Put) -> None:
    ref = put(store)
    folder = WeightCache(store, tmp_path / "cache").folder(ref.digest)
    assert folder == tmp_path / "cache" / ref.digest
    assert contents(folder) == FILES
    assert sorted(p.name for p in (tmp_path / "cache").iterdir()) == [ref.digest], "nothing half-made is left"


def test_a_local_store_is_linked_not_copied(files: ArtifactStore, tmp_path: Path) -> None:
    folder = WeightCache(files, tmp_path / "cache").folder(put_plain(files).digest)
    for path in FILES:
        assert (folder / path).stat().st_ino == object_of(files, path).stat().st_ino
    folder = WeightCache(files, tmp_path / "cache").folder(put_split(files).digest)
    assert (folder / "config.json").stat().st_ino == object_of(files, "config.json").stat().st_ino


def test_where_links_are_impossible_files_are_copied(
    files: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, put: Put
) -> None:
    def across_filesystems(source: Path, path: Path) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(weight_cache.os, "link", across_filesystems)
    folder = WeightCache(files, tmp_path / "cache").folder(put(files).digest)
    assert contents(folder) == FILES
    assert (folder / "config.json").stat().st_nlink == 1


def test_unchanged_files_are_not_read_again(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, put: Put
) -> None:
    ref = put(store)
    WeightCache(store, tmp_path / "cache").folder(ref.digest)
    hashed: list[Path] = []
    original: Callable[[Path], str] = weight_cache._sha256
    monkeypatch.setattr(weight_cache, "_sha256", lambda path: (hashed.append(path), original(path))[1])
    cache = WeightCache(store, tmp_path / "cache")
    folder = cache.folder(ref.digest)
    assert hashed == []
    (folder / "config.json").touch()
    assert cache.folder(ref.digest) == folder
    assert hashed == [folder / "config.json"], "touched, so hashed, and found equal"


@pytest.mark.parametrize("harm", ["flip", "cut", "remove"])
def test_a_damaged_folder_is_built_again(store: ArtifactStore, tmp_path: Path, harm: str, put: Put) -> None:
    ref = put(store)
    cache = WeightCache(store, tmp_path / "cache")
    path = cache.folder(ref.digest) / "shards/model-1.safetensors"
    data = path.read_bytes()
    path.unlink()  # first, so that a hard link's other end, the stored object, stays whole
    if harm == "flip":
        path.write_bytes(data[:-1] + b"!")
    elif harm == "cut":
        path.write_bytes(data[:-1])
    assert contents(cache.folder(ref.digest)) == FILES


def test_damage_in_the_store_is_found_before_the_bytes_are_used(
    files: ArtifactStore, tmp_path: Path, put: Put
) -> None:
    ref = put(files)
    damage(object_of(files, "config.json"))
    cache = WeightCache(files, tmp_path / "cache")
    with pytest.raises(ArtifactCorrupt, match=r"config\.json.*import the weights again"):
        cache.folder(ref.digest)
    assert list((tmp_path / "cache").iterdir()) == []
    put(files)  # importing again repairs the object
    assert contents(cache.folder(ref.digest)) == FILES


def test_damage_through_the_link_is_found_too(files: ArtifactStore, tmp_path: Path, put: Put) -> None:
    ref = put(files)
    cache = WeightCache(files, tmp_path / "cache")
    cache.folder(ref.digest)
    damage(object_of(files, "config.json"))
    with pytest.raises(ArtifactCorrupt):
        cache.folder(ref.digest)


def test_a_missing_file_is_said_to_be_missing(files: ArtifactStore, tmp_path: Path, put: Put) -> None:
    ref = put(files)
    object_of(files, "config.json").unlink()
    with pytest.raises(ArtifactMissing):
        WeightCache(files, tmp_path / "cache").folder(ref.digest)


def test_a_folder_another_worker_has_just_built_stays(files: ArtifactStore, tmp_path: Path, put: Put) -> None:
    ref = put(files)
    cache = WeightCache(files, tmp_path / "cache")
    folder = cache.folder(ref.digest)
    before = folder.stat().st_ino
    cache._build(folder, cache.manifest(ref.digest))  # the second of two workers that found it absent
    assert folder.stat().st_ino == before
    assert sorted(p.name for p in folder.parent.iterdir()) == [ref.digest]


def changed(**tensors: np.ndarray) -> dict[str, bytes]:
    return {**FILES, "shards/model-1.safetensors": saved(checkpoint(1, **tensors))}


@pytest.fixture
def remote() -> ArtifactStore:
    return ArtifactStore.open(f"memory://{new_id()}")


def test_from_a_store_elsewhere_only_what_changed_is_fetched(remote: ArtifactStore, tmp_path: Path) -> None:
    zeros = np.zeros((256, 256), np.float32)
    files = changed(**{"blocks.2.weight": zeros})
    one, two = put_split(remote), put_component(remote, "net", files).manifest
    counted, backend = counting(remote)
    cache = WeightCache(counted, tmp_path / "cache")
    cache.folder(one.digest)
    backend.calls.clear()
    folder = cache.folder(two.digest)
    assert {path: (folder / path).read_bytes() for path in files} == files
    headers = [sha256(data[: 8 + int.from_bytes(data[:8], "little")]) for data in shards(files)]
    fetched = set(backend.names("read", "open"))
    assert fetched == {two.digest, sha256(files["config.json"]), *headers, sha256(zeros.tobytes())}


def shards(files: dict[str, bytes]) -> list[bytes]:
    return [data for path, data in files.items() if path.endswith(".safetensors")]


@pytest.mark.parametrize("harm", ["flip", "cut", "remove"])
def test_damage_nearby_is_found_and_the_tensors_are_fetched(
    remote: ArtifactStore, tmp_path: Path, harm: str
) -> None:
    files = changed(**{"blocks.2.weight": np.zeros((256, 256), np.float32)})
    one, two = put_split(remote), put_component(remote, "net", files).manifest
    cache = WeightCache(remote, tmp_path / "cache")
    path = cache.folder(one.digest) / "shards/model-1.safetensors"
    if harm == "flip":
        damage(path)
    elif harm == "cut":
        path.write_bytes(path.read_bytes()[:1000])
    else:
        path.unlink()
    folder = cache.folder(two.digest)
    assert {path: (folder / path).read_bytes() for path in files} == files


def test_an_adapter_comes_with_what_it_builds_on(store: ArtifactStore, tmp_path: Path) -> None:
    base = put_split(store)
    own = {"adapter.safetensors": saved(checkpoint(3, large=1))}
    adapter = put_component(store, "net", own, base=base.digest).manifest
    cache = WeightCache(store, tmp_path / "cache")
    below, above = cache.layers(adapter.digest)
    assert contents(below) == FILES
    assert (above / "adapter.safetensors").read_bytes() == own["adapter.safetensors"]
    assert cache.layers(base.digest) == (below,)
