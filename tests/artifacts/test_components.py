"""Components as objects: what two of them share, and that each comes back byte for byte."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from mutoscope.platform.artifacts import ArtifactStore, split
from mutoscope.platform.artifacts.assembly import write_file
from mutoscope.platform.artifacts.components import StoredComponent, put_component
from mutoscope.platform.artifacts.manifest import BASE_MEMBER, ComponentManifest, iter_members
from mutoscope.platform.errors import (
    ArtifactCorrupt,
    ArtifactMissing,
    InvalidFolder,
    InvalidParameter,
    StoreUnwritable,
)
from tests.support.counting import counting
from tests.support.safetensors import by_hand, checkpoint, entry, saved

Files = Mapping[str, bytes | Path]

MODEL = "model.safetensors"


def manifest_of(store: ArtifactStore, stored: StoredComponent) -> ComponentManifest:
    return ComponentManifest.parse(store.get(stored.manifest.digest))


def put(store: ArtifactStore, files: Files, base: str | None = None) -> ComponentManifest:
    return manifest_of(store, put_component(store, "net", files, base=base))


def assembled(store: ArtifactStore, manifest: ComponentManifest, folder: Path) -> dict[str, bytes]:
    folder.mkdir(exist_ok=True)
    for file in manifest.files:
        write_file(store, file, folder / file.path)
    assert sorted(path.name for path in folder.iterdir()) == sorted(file.path for file in manifest.files)
    return {file.path: (folder / file.path).read_bytes() for file in manifest.files}


def objects(store: ArtifactStore) -> dict[str, int]:
    return {stored.digest: stored.size for stored in store.inventory()}


SHAPES: dict[str, bytes] = {
    "large and small": saved(checkpoint(1)),
    "small alone": saved(checkpoint(1, large=0)),
    "large alone": saved(checkpoint(1, small=0)),
    "several packs": saved(checkpoint(1, large=2, small=1500)),
    "no elements": by_hand({"none": entry(0, 0, [0, 4]), "a": entry(0, 4, [1])}, b"abcd"),
    "no bytes at all": by_hand({"none": entry(0, 0, [0])}, b""),
    "types that NumPy lacks": by_hand(
        {"a": entry(0, 4, [2], "BF16"), "b": entry(4, 8, [8], "F4")}, b"abcdefgh"
    ),
    "an odd header": by_hand({"b": entry(0, 4, [1]), "a": entry(4, 8, [1])}, b"abcdefgh", padding=7),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("on_disk", [True, False], ids=["path", "bytes"])
def test_a_file_comes_back_byte_for_byte(
    store: ArtifactStore, tmp_path: Path, shape: str, on_disk: bool
) -> None:
    source: bytes | Path = SHAPES[shape]
    if on_disk:
        (tmp_path / MODEL).write_bytes(SHAPES[shape])
        source = tmp_path / MODEL
    manifest = put(store, {MODEL: source, "config.json": b"{}"})
    assert manifest.files[1].split is not None
    assert assembled(store, manifest, tmp_path / "out") == {MODEL: SHAPES[shape], "config.json": b"{}"}


def test_the_members_are_exactly_what_the_store_holds(store: ArtifactStore) -> None:
    stored = put_component(store, "net", {MODEL: saved(checkpoint(1)), "config.json": b"{}"})
    members = list(iter_members(manifest_of(store, stored)))
    assert {m.path: (m.digest, m.size) for m in members} == {
        path: (ref.digest, ref.size) for path, ref in stored.members.items() if not isinstance(ref, str)
    }
    assert objects(store) == {m.digest: m.size for m in members} | {
        stored.manifest.digest: stored.manifest.size
    }
    assert {m.path for m in members} == {
        "config.json",
        f"{MODEL}/header",
        f"{MODEL}/packs/0",
        *(f"{MODEL}/tensors/blocks.{index}.weight" for index in range(4)),
    }


def test_two_versions_share_every_tensor_they_have_in_common(store: ArtifactStore) -> None:
    put(store, {MODEL: saved(checkpoint(1))})
    before = objects(store)
    changed = np.zeros((256, 256), np.float32)
    put(store, {MODEL: saved(checkpoint(1, **{"blocks.2.weight": changed}))})
    added = {digest: size for digest, size in objects(store).items() if digest not in before}
    # The tensor and the manifest; names and shapes did not change, so neither did the header.
    assert len(added) == 2
    assert sum(added.values()) < changed.nbytes + 8_000


def test_a_small_tensor_costs_its_pack_and_no_more(store: ArtifactStore) -> None:
    put(store, {MODEL: saved(checkpoint(1, small=3000))})
    before = objects(store)
    put(store, {MODEL: saved(checkpoint(1, small=3000, **{"blocks.7.bias": np.ones(256, np.float32)}))})
    added = sorted(size for digest, size in objects(store).items() if digest not in before)
    assert len(added) == 2, "a pack and the manifest"
    assert added[-1] <= split.PACK_BYTES + split.SMALL_BYTES


def test_ten_thousand_small_tensors_are_few_objects(store: ArtifactStore) -> None:
    arrays = {f"t{index}": np.full(128, index, np.float32) for index in range(10_000)}
    manifest = put(store, {MODEL: saved(arrays)})
    # 5.12 MB of tensors in packs of 1 MiB, the header, the manifest.
    assert len(objects(store)) == 5 + 1 + 1
    assert len(manifest.files[0].split.tensors) == 10_000  # type: ignore[union-attr]


def test_shards_share_with_the_whole_file(store: ArtifactStore, tmp_path: Path) -> None:
    arrays = checkpoint(1)
    put(store, {MODEL: saved(arrays)})
    before = objects(store)
    names = sorted(arrays)
    shards: dict[str, bytes | Path] = {"model.safetensors.index.json": b'{"weight_map": {}}'}
    for index in (0, 1):
        path = tmp_path / f"model-0000{index + 1}-of-00002.safetensors"
        save_file({name: arrays[name] for name in names[index::2]}, path)
        shards[path.name] = path
    manifest = put(store, shards)
    large = {t.digest for f in manifest.files if f.split for t in f.split.tensors if t.pack is None}
    assert len(large) == 4
    assert large <= set(before)
    found = assembled(store, manifest, tmp_path / "out")
    assert found == {name: s if isinstance(s, bytes) else s.read_bytes() for name, s in shards.items()}


def test_equal_files_have_equal_manifests_wherever_they_lie(store: ArtifactStore, tmp_path: Path) -> None:
    data = saved(checkpoint(1))
    (tmp_path / "elsewhere").write_bytes(data)
    one = put_component(store, "net", {MODEL: data, "config.json": b"{}"})
    two = put_component(store, "net", {"config.json": b"{}", MODEL: tmp_path / "elsewhere"})
    assert one.manifest == two.manifest
    assert put_component(store, "other", {MODEL: data, "config.json": b"{}"}).manifest != one.manifest


def test_what_is_stored_already_is_not_written_again(store: ArtifactStore) -> None:
    files = {MODEL: saved(checkpoint(1)), "config.json": b"{}"}
    put(store, files)
    again, backend = counting(store)
    put(again, files)
    assert backend.names("write", "move", "stage", "copy") == []


def test_putting_it_again_repairs_damage(store: ArtifactStore) -> None:
    files = {MODEL: saved(checkpoint(1))}
    stored = put_component(store, "net", files)
    for digest in [ref.digest for ref in stored.members.values() if not isinstance(ref, str)]:
        path = store.local_path(digest)
        assert path is not None
        path.chmod(0o644)
        path.write_bytes(b"damaged")
    assert put_component(store, "net", files) == stored
    assert {store.verify(digest) for digest in store.digests()} == {"sound"}


def test_a_large_tensor_is_streamed(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(split, "_WHOLE_BYTES", 100_000)
    monkeypatch.setattr(split, "_HELD_BYTES", 200_000)
    whole = put_component(store, "net", {MODEL: saved(checkpoint(1))})
    monkeypatch.undo()
    assert put_component(store, "net", {MODEL: saved(checkpoint(1))}) == whole
    assert assembled(store, manifest_of(store, whole), tmp_path / "out") == {MODEL: saved(checkpoint(1))}


DAMAGED = {
    "a hole": by_hand({"a": entry(0, 4, [1]), "b": entry(8, 12, [1])}, bytes(12)),
    "an overlap": by_hand({"a": entry(0, 8, [2]), "b": entry(4, 8, [1])}, bytes(8)),
    "cut": saved(checkpoint(1))[:-1],
    "no header": b"not a checkpoint at all",
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_is_refused_by_name_before_anything_is_stored(
    store: ArtifactStore, damage: str
) -> None:
    with pytest.raises(InvalidFolder, match=r"^model\.safetensors .*import the folder again$"):
        put_component(store, "net", {MODEL: DAMAGED[damage]})
    assert objects(store) == {}


def test_a_file_cut_while_it_is_read_is_refused(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / MODEL
    path.write_bytes(saved(checkpoint(1)))
    original = split.can_split

    def cut(name: str, layout: object) -> bool:
        path.write_bytes(path.read_bytes()[:-1000])
        return original(name, layout)  # type: ignore[arg-type]

    monkeypatch.setattr("mutoscope.platform.artifacts.components.can_split", cut)
    with pytest.raises(InvalidFolder, match=r"model\.safetensors was cut while it was read"):
        put_component(store, "net", {MODEL: path})


@pytest.mark.parametrize(
    "data",
    [by_hand({}, b""), by_hand({"n" * 600: entry(0, 4, [1])}, bytes(4))],
    ids=["no tensors", "a name too long for a row"],
)
def test_what_cannot_be_split_is_kept_whole(store: ArtifactStore, tmp_path: Path, data: bytes) -> None:
    manifest = put(store, {MODEL: data})
    assert manifest.files[0].split is None
    assert assembled(store, manifest, tmp_path / "out") == {MODEL: data}


@pytest.mark.parametrize("path", ["../escape", "/etc/passwd", ":base", "", "a" * 513])
def test_a_path_that_cannot_be_kept_is_refused(store: ArtifactStore, path: str) -> None:
    with pytest.raises(InvalidParameter, match=r"^path="):
        put_component(store, "net", {path: b""})


def test_a_store_that_refuses_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = ArtifactStore.open(f"file://{tmp_path}/file/store")
    with pytest.raises(StoreUnwritable):
        put_component(store, "net", {MODEL: saved(checkpoint(1))})


@pytest.mark.parametrize("part", ["header", "packs/0", "tensors/blocks.1.weight"])
def test_damage_in_any_part_is_found_before_the_file_appears(
    store: ArtifactStore, tmp_path: Path, part: str
) -> None:
    stored = put_component(store, "net", {MODEL: saved(checkpoint(1))})
    ref = stored.members[f"{MODEL}/{part}"]
    assert not isinstance(ref, str)
    path = store.local_path(ref.digest)
    assert path is not None
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)
    (file,) = manifest_of(store, stored).files
    with pytest.raises(ArtifactCorrupt, match=f"artifact {ref.digest[:12]} "):
        write_file(store, file, tmp_path / MODEL)
    assert [p.name for p in tmp_path.iterdir()] == [".mutoscope"]
    path.unlink()
    with pytest.raises(ArtifactMissing, match=f"artifact {ref.digest[:12]} "):
        write_file(store, file, tmp_path / MODEL)
    assert [p.name for p in tmp_path.iterdir()] == [".mutoscope"]


def test_a_part_in_the_trash_is_found_there(store: ArtifactStore, tmp_path: Path) -> None:
    stored = put_component(store, "net", {MODEL: saved(checkpoint(1))})
    for ref in stored.members.values():
        assert not isinstance(ref, str)
        assert store.trash(ref.digest)
    assert assembled(store, manifest_of(store, stored), tmp_path / "out") == {MODEL: saved(checkpoint(1))}


def test_an_adapter_names_its_base_and_holds_its_own_tensors_only(store: ArtifactStore) -> None:
    base = put_component(store, "net", {MODEL: saved(checkpoint(1))})
    before = objects(store)
    adapter = {f"blocks.{index}.lora_A.weight": np.ones((8, 256), np.float32) for index in range(4)}
    stored = put_component(store, "net", {"adapter.safetensors": saved(adapter)}, base=base.manifest.digest)
    assert manifest_of(store, stored).base == base.manifest.digest
    assert stored.members[BASE_MEMBER] == base.manifest.digest
    added = sum(size for digest, size in objects(store).items() if digest not in before)
    assert added < 4 * 8 * 256 * 4 + 4_000
    alone = put_component(store, "net", {"adapter.safetensors": saved(adapter)})
    assert alone.manifest.digest != stored.manifest.digest, "over another base it is another component"


def test_a_base_that_is_none_is_refused(store: ArtifactStore) -> None:
    other = store.put(b"a picture", kind="blob", media_type="image/png")
    with pytest.raises(InvalidParameter, match=r"^base="):
        put_component(store, "net", {MODEL: saved(checkpoint(1))}, base=other.digest)
    with pytest.raises(ArtifactMissing):
        put_component(store, "net", {MODEL: saved(checkpoint(1))}, base="0" * 64)
