"""Opening tensors: exactly the one asked for is read, and proven."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.artifacts.components import put_component
from mutoscope.platform.artifacts.manifest import ComponentManifest, ManifestFile
from mutoscope.platform.artifacts.tensors import open_tensors
from mutoscope.platform.errors import ArtifactCorrupt, ArtifactMissing, InvalidParameter
from tests.support.counting import counting
from tests.support.safetensors import by_hand, checkpoint, entry, saved

MODEL = "model.safetensors"
READS = ("read", "read_range", "open")


def put(store: ArtifactStore, data: bytes, base: str | None = None) -> ComponentManifest:
    stored = put_component(store, "net", {MODEL: data, "config.json": b"{}"}, base=base)
    return ComponentManifest.parse(store.get(stored.manifest.digest))


def put_plain(store: ArtifactStore, data: bytes) -> ComponentManifest:
    """As the first format kept it: each file one object."""
    ref = store.put(data, kind="blob", media_type="application/vnd.safetensors")
    manifest = ComponentManifest("net", (ManifestFile(MODEL, ref.digest, ref.size),))
    assert b"mutoscope.component/1" in manifest.to_bytes()
    return manifest


def digest_of(manifest: ComponentManifest, name: str) -> str:
    """The object that holds a tensor."""
    (split,) = (file.split for file in manifest.files if file.split is not None)
    (tensor,) = (tensor for tensor in split.tensors if tensor.name == name)
    return tensor.digest if tensor.pack is None else split.packs[tensor.pack].digest


def damage(store: ArtifactStore, digest: str) -> None:
    path = store.local_path(digest)
    assert path is not None
    path.chmod(0o644)
    path.write_bytes(bytes(byte ^ 1 for byte in path.read_bytes()))


@pytest.mark.parametrize("keep", [put, put_plain], ids=["split", "plain"])
def test_every_tensor_is_what_was_saved(store: ArtifactStore, keep: Any) -> None:
    arrays = checkpoint(
        1,
        half=np.arange(6, dtype=np.float16).reshape(2, 3),
        scalar=np.array(3.5),
        none=np.zeros((0, 4), np.int64),
        flags=np.array([True, False]),
    )
    tensors = open_tensors(store, keep(store, saved(arrays)))
    assert set(tensors) == set(arrays)
    assert len(tensors) == len(arrays)
    for name, array in arrays.items():
        assert tensors[name].dtype == array.dtype
        assert tensors[name].shape == array.shape
        assert np.array_equal(tensors[name], array)
        assert not tensors[name].flags.writeable
    with pytest.raises(KeyError):
        tensors["another"]


@pytest.mark.parametrize("name", ["blocks.2.weight", "blocks.7.bias"], ids=["own object", "packed"])
def test_one_of_many_is_one_read_of_its_object(store: ArtifactStore, name: str) -> None:
    manifest = put(store, saved(checkpoint(1)))
    counted, backend = counting(store)
    tensors = open_tensors(counted, manifest)
    assert set(tensors) == set(checkpoint(1))
    assert backend.names(*READS) == [], "opening reads nothing: the manifest names the tensors"
    assert np.array_equal(tensors[name], checkpoint(1)[name])
    assert backend.names(*READS) == [digest_of(manifest, name)]


@pytest.mark.parametrize("name", ["blocks.2.weight", "blocks.7.bias"], ids=["own object", "packed"])
def test_damage_is_found_and_stays_where_it_is(store: ArtifactStore, name: str) -> None:
    manifest = put(store, saved(checkpoint(1)))
    digest = digest_of(manifest, name)
    damage(store, digest)
    tensors = open_tensors(store, manifest)
    with pytest.raises(ArtifactCorrupt, match=f"artifact {digest[:12]} is damaged"):
        tensors[name]
    assert np.array_equal(tensors["blocks.1.weight"], checkpoint(1)["blocks.1.weight"])


def test_damage_in_a_plain_file_is_found(store: ArtifactStore) -> None:
    manifest = put_plain(store, saved(checkpoint(1)))
    path = store.local_path(manifest.files[0].digest)
    assert path is not None
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)
    with pytest.raises(ArtifactCorrupt):
        open_tensors(store, manifest)["blocks.1.weight"]  # another tensor than the damaged one
    path.write_bytes(b"x" * 100)
    with pytest.raises(ArtifactCorrupt, match="import the weights again"):
        open_tensors(store, manifest)


def test_a_missing_object_is_said_to_be_missing(store: ArtifactStore) -> None:
    manifest = put(store, saved(checkpoint(1)))
    path = store.local_path(digest_of(manifest, "blocks.2.weight"))
    assert path is not None
    path.unlink()
    with pytest.raises(ArtifactMissing):
        open_tensors(store, manifest)["blocks.2.weight"]


def test_an_adapter_shows_its_own_tensors_over_those_of_its_base(store: ArtifactStore) -> None:
    base = put_component(store, "net", {MODEL: saved(checkpoint(1))}).manifest.digest
    own = {"blocks.1.lora_A.weight": np.ones((8, 256), np.float32), "blocks.0.bias": np.ones(256, np.float32)}
    tensors = open_tensors(store, put(store, saved(own), base=base))
    assert set(tensors) == set(checkpoint(1)) | set(own)
    for name, array in (checkpoint(1) | own).items():
        assert np.array_equal(tensors[name], array)


def test_two_files_with_a_tensor_of_one_name_are_refused(store: ArtifactStore) -> None:
    stored = put_component(
        store, "net", {"a.safetensors": saved(checkpoint(1)), "b.safetensors": saved(checkpoint(2))}
    )
    with pytest.raises(InvalidParameter, match=r"^tensor='blocks\.0\.bias' .*two files of net"):
        open_tensors(store, ComponentManifest.parse(store.get(stored.manifest.digest)))


def test_a_type_numpy_lacks_is_named(store: ArtifactStore) -> None:
    manifest = put(store, by_hand({"a": entry(0, 4, [2], "BF16")}, bytes(4)))
    with pytest.raises(InvalidParameter, match=r"dtype='BF16' .*torch"):
        open_tensors(store, manifest)["a"]


def test_files_without_tensors_have_none(store: ArtifactStore, tmp_path: Path) -> None:
    stored = put_component(store, "tokenizer", {"tokenizer.json": b"{}"})
    assert dict(open_tensors(store, ComponentManifest.parse(store.get(stored.manifest.digest)))) == {}
