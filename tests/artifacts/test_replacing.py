"""Successors of a component: what did not change is shared, and nothing changed is nothing new."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.artifacts.components import StoredComponent, put_component
from mutoscope.platform.artifacts.manifest import ComponentManifest, iter_members
from mutoscope.platform.artifacts.replacing import put_replaced
from mutoscope.platform.artifacts.tensors import RawTensor, open_tensors
from mutoscope.platform.errors import InvalidParameter
from tests.support.safetensors import saved

WEIGHTS = {
    "a.weight": np.arange(6, dtype=np.float16).reshape(2, 3),
    "b.weight": np.arange(40_000, dtype=np.float32).reshape(200, 200),
    "head.weight": np.ones((4,), np.float32),
}
OTHER = {"c.weight": np.zeros((3,), np.float32)}


@pytest.fixture
def before(store: ArtifactStore) -> StoredComponent:
    files = {"config.json": b"{}", "one.safetensors": saved(WEIGHTS), "two.safetensors": saved(OTHER)}
    return put_component(store, "net", files)


def raw(array: np.ndarray) -> RawTensor:
    names = {"float32": "F32", "float16": "F16"}
    return RawTensor(names[array.dtype.name], array.shape, array.tobytes())


def manifest(store: ArtifactStore, stored: StoredComponent) -> ComponentManifest:
    return ComponentManifest.parse(store.get(stored.manifest.digest))


def test_nothing_replaced_is_the_same_component(store: ArtifactStore, before: StoredComponent) -> None:
    after = put_replaced(store, before.manifest.digest, {})
    assert after.manifest.digest == before.manifest.digest


def test_what_changed_changes_and_the_rest_is_shared(store: ArtifactStore, before: StoredComponent) -> None:
    known = set(store.digests())
    trained = np.full((2, 3), 0.1, np.float32)  # float16 before: what was trained is kept as it is
    after = put_replaced(store, before.manifest.digest, {"a.weight": raw(trained)})
    tensors = open_tensors(store, manifest(store, after))
    assert set(tensors) == {*WEIGHTS, *OTHER}
    assert np.array_equal(tensors["a.weight"], trained)
    assert tensors["a.weight"].dtype == np.float32
    assert np.array_equal(tensors["b.weight"], WEIGHTS["b.weight"])
    old, new = ({f.path: f for f in manifest(store, each).files} for each in (before, after))
    assert new["two.safetensors"] == old["two.safetensors"]
    assert new["config.json"] == old["config.json"]
    # The header, the pack of small tensors and the manifest; not the large tensor.
    assert sum(store.size(digest) for digest in set(store.digests()) - known) < 5_000
    assert set(after.members) == {member.path for member in iter_members(manifest(store, after))}


def test_a_tied_tensor_is_found_by_its_other_name(store: ArtifactStore, before: StoredComponent) -> None:
    ones = raw(np.full((4,), 7, np.float32))
    after = put_replaced(
        store, before.manifest.digest, {"embed.weight": ones}, tied={"embed.weight": ["head.weight"]}
    )
    assert open_tensors(store, manifest(store, after))["head.weight"].tolist() == [7, 7, 7, 7]


def test_what_the_component_does_not_have_is_refused(store: ArtifactStore, before: StoredComponent) -> None:
    digest = before.manifest.digest
    with pytest.raises(InvalidParameter, match=r"tensor='x.weight' is not valid: net .* has no such tensor"):
        put_replaced(store, digest, {"x.weight": raw(np.ones(2, np.float32))})
    with pytest.raises(InvalidParameter, match=r"a.weight=\[2\] is not valid: the tensor has shape \[2, 3\]"):
        put_replaced(store, digest, {"a.weight": raw(np.ones(2, np.float32))})
    adapter = put_component(store, "net", {"lora.safetensors": saved(OTHER)}, base=digest)
    with pytest.raises(InvalidParameter, match="an adapter's tensors cannot be replaced"):
        put_replaced(store, adapter.manifest.digest, {})


def test_a_file_stored_whole_is_replaced_too(store: ArtifactStore, tmp_path: Path) -> None:
    """One whose names are too long for members of their own."""
    name = "n" * 600
    before = put_component(store, "net", {"model.safetensors": saved({name: np.zeros(3, np.float32)})})
    after = put_replaced(store, before.manifest.digest, {name: raw(np.ones(3, np.float32))})
    assert open_tensors(store, manifest(store, after))[name].tolist() == [1, 1, 1]
