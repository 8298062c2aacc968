"""A LoRA over the starter transformer, as diffusers writes it: stored beside its base and read back."""

from __future__ import annotations

from pathlib import Path

import pytest

from mutoscope.models.starter.folders import starter_folder
from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.artifacts.components import put_component
from mutoscope.platform.artifacts.manifest import BASE_MEMBER, ComponentManifest
from mutoscope.platform.catalog import Catalog
from mutoscope.workers.tensors import open_tensors
from mutoscope.workers.weight_cache import WeightCache

torch = pytest.importorskip("torch")

RANK = 4


@pytest.fixture
def transformer() -> Path:
    folder = starter_folder("flux-t2i")
    assert folder is not None
    return folder / "transformer"


def lora(folder: Path) -> dict[str, torch.Tensor]:
    """Write a LoRA of the first block's attention the way a diffusers trainer does; its tensors by name."""
    from diffusers import FluxPipeline

    torch.manual_seed(0)
    layers = {}
    for name in ("to_q", "to_k", "to_v", "to_out.0"):
        layers[f"transformer_blocks.0.attn.{name}.lora_A.weight"] = torch.randn(RANK, 128)
        layers[f"transformer_blocks.0.attn.{name}.lora_B.weight"] = torch.randn(128, RANK)
    FluxPipeline.save_lora_weights(folder, transformer_lora_layers=layers)
    return {f"transformer.{name}": tensor for name, tensor in layers.items()}


def test_from_a_trainer_to_a_version_and_back(
    catalog: Catalog, store: ArtifactStore, tmp_path: Path, transformer: Path
) -> None:
    from diffusers import FluxPipeline, FluxTransformer2DModel

    base = put_component(store, "transformer", {path.name: path for path in transformer.iterdir()})
    catalog.runs.record_completed(
        "import",
        generated={"weights:transformer": base.manifest},
        members={base.manifest.digest: base.members},
    )
    parent = catalog.weights.publish("flux-t2i", "transformer", base.manifest.digest)
    before = sum(stored.size for stored in store.inventory())

    trained = lora(tmp_path / "trained")
    files = {path.name: path for path in (tmp_path / "trained").iterdir()}
    adapter = put_component(store, "transformer", files, base=base.manifest.digest)
    run = catalog.runs.record_completed(
        "train",
        used={"weights:transformer": base.manifest.digest},
        generated={"transformer": adapter.manifest},
        members={adapter.manifest.digest: adapter.members},
    )
    version = catalog.weights.publish("flux-t2i", "transformer", adapter.manifest.digest, run.id, parent)

    assert (version.ordinal, version.parent_id) == (2, parent.id)
    assert catalog.audit.members(version.digest)[BASE_MEMBER] == base.manifest.digest
    # 8 matrices of 4 x 128 float32 are 16 KiB; headers and the manifest are the rest. The base has 9 MB.
    assert sum(stored.size for stored in store.inventory()) - before < 20_000

    below, above = WeightCache(store, tmp_path / "cache").layers(version.digest)
    model = FluxTransformer2DModel.from_pretrained(below)
    read = FluxPipeline.lora_state_dict(above)
    assert set(read) == set(trained)
    assert all(read[name].equal(tensor) for name, tensor in trained.items())

    tensors = open_tensors(store, ComponentManifest.parse(store.get(version.digest)))
    assert set(tensors) == set(trained) | set(model.state_dict())
    loaded = trained | model.state_dict()  # in float32; some are stored in float16
    assert all(tensors[name].float().equal(tensor) for name, tensor in loaded.items())
