"""A stored version brought to a resident by a sync equals that version loaded from its folder."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from diffusers import FluxTransformer2DModel
from transformers import T5EncoderModel

from mutoscope.models.flux.card import CARD
from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.artifacts.components import put_component
from mutoscope.platform.engine import numerics
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import load_instance
from mutoscope.platform.engine.resident import Resident
from mutoscope.platform.engine.sync import Strategy, WeightSync
from mutoscope.platform.errors import ArtifactCorrupt, SyncFailed
from mutoscope.workers.updates import update_of
from tests.support.damage import flip
from tests.support.tiny_flux import save_tiny_flux
from tests.support.versions import alone, lora_tensors, named, request, state, write_lora

CLASSES = {"transformer": FluxTransformer2DModel, "text_encoder_2": T5EncoderModel}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    numerics.configure_torch(numerics.cpu_contract(1))
    return save_tiny_flux(tmp_path / "folder")


def stored(store: ArtifactStore, folder: Path, component: str) -> str:
    files = {path.name: path for path in (folder / component).iterdir()}
    return put_component(store, component, files).manifest.digest


@pytest.mark.parametrize("component", CLASSES)
@pytest.mark.parametrize("strategy", ["fence", "drain"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["as served", "in half precision"])
def test_a_stored_version_arrives_whole(
    store: ArtifactStore, folder: Path, component: str, strategy: Strategy, dtype: torch.dtype
) -> None:
    resident = Resident(named(folder))
    module = CLASSES[component].from_pretrained(folder / component)
    module.load_state_dict(state(module, 1))
    module.to(dtype).save_pretrained(folder / component)
    digest = stored(store, folder, component)

    sync = WeightSync(Engine(), resident)
    update = update_of(store, component, digest)
    assert update.proofs
    report = sync.apply(update, strategy=strategy)
    assert report.after == {component: digest}
    assert resident.instance.weights[component] == digest
    assert alone(resident.instance, request("r")) == alone(load_instance(CARD, folder), request("r"))


def test_damage_in_the_store_is_found_before_anything_changes(store: ArtifactStore, folder: Path) -> None:
    resident = Resident(named(folder))
    before = alone(resident.instance, request("r"))
    digest = stored(store, folder, "transformer")
    largest = max((one for one in store.inventory()), key=lambda one: one.size)
    flip(store, largest.digest)
    with pytest.raises(ArtifactCorrupt):
        WeightSync(Engine(), resident).apply(update_of(store, "transformer", digest))
    assert alone(resident.instance, request("r")) == before


def test_adapters_and_recipes_are_no_updates(store: ArtifactStore, folder: Path) -> None:
    base = stored(store, folder, "transformer")
    file = write_lora(folder / "lora.safetensors", lora_tensors(named(folder), 1))
    lora = put_component(store, "transformer", {file.name: file}, base=base).manifest.digest
    with pytest.raises(SyncFailed, match=f"^transformer {lora[:12]} is an adapter for {base[:12]}: sync a"):
        update_of(store, "transformer", lora)
    recipe = store.put(b"{}", kind="json", media_type="application/json").digest
    with pytest.raises(SyncFailed, match=f"^transformer {recipe[:12]} is no weights"):
        update_of(store, "transformer", recipe)
