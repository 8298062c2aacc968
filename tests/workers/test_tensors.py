"""A component's tensors as torch tensors."""

from __future__ import annotations

import pytest

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.artifacts.components import put_component
from mutoscope.platform.artifacts.manifest import ComponentManifest
from mutoscope.platform.errors import InvalidParameter
from mutoscope.workers.tensors import open_tensors
from tests.support.safetensors import by_hand, entry

torch = pytest.importorskip("torch")
from safetensors.torch import save  # noqa: E402  # imports torch


def put(store: ArtifactStore, data: bytes) -> ComponentManifest:
    stored = put_component(store, "net", {"model.safetensors": data})
    return ComponentManifest.parse(store.get(stored.manifest.digest))


def test_every_type_a_model_has_comes_back(store: ArtifactStore) -> None:
    torch.manual_seed(0)
    values = torch.randn(256, 256)
    types = (
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
        torch.int64,
    )
    saved = {str(kind): values.to(kind) for kind in (*types, torch.bool, torch.uint8)}
    saved |= {"scalar": torch.tensor(2.5), "none": torch.zeros(0, 4)}
    tensors = open_tensors(store, put(store, save(saved)))
    assert set(tensors) == set(saved)
    for name, tensor in saved.items():
        assert tensors[name].dtype == tensor.dtype
        assert tensors[name].shape == tensor.shape
        # As bytes: 8-bit floats have no comparison.
        assert tensors[name].reshape(-1).view(torch.uint8).equal(tensor.reshape(-1).view(torch.uint8))


def test_a_tensor_has_memory_of_its_own(store: ArtifactStore) -> None:
    tensors = open_tensors(store, put(store, save({"a": torch.ones(4)})))
    tensors["a"].add_(1)
    assert tensors["a"].tolist() == [1, 1, 1, 1]


def test_a_type_torch_lacks_is_named(store: ArtifactStore) -> None:
    tensors = open_tensors(store, put(store, by_hand({"a": entry(0, 4, [8], "F4")}, bytes(4))))
    with pytest.raises(InvalidParameter, match="dtype='F4'"):
        tensors["a"]
