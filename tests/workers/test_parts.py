"""Real components, shared: by versions of a card, by an adapter and its base, by runs old and new."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from diffusers import FluxTransformer2DModel

from mutoscope.models.flux.card import CARD
from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.artifacts.components import put_component
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.engine import numerics
from mutoscope.platform.engine.adapters import read_adapter, with_adapter
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.errors import InvalidAdapter
from mutoscope.platform.orchestration.importing import import_folder
from mutoscope.workers.device import Device
from mutoscope.workers.residency import Residency
from mutoscope.workers.weight_cache import WeightCache
from tests.support.interleaving import content
from tests.support.tiny_flux import save_tiny_flux
from tests.support.versions import TARGETS, alone, lora_tensors, request, state, write_lora

Weights = dict[str, str]
MODULES = ("transformer", "vae", "text_encoder", "text_encoder_2")


class Shop:
    """A home with tiny FLUX weights, and a residency that serves from it."""

    def __init__(self, catalog: Catalog, store: ArtifactStore, folder: Path) -> None:
        numerics.configure_torch(numerics.cpu_contract(1))
        self.catalog, self.store, self.folder = catalog, store, folder
        self.source = save_tiny_flux(folder / "source")
        self.residency = self.open()

    def open(self, budget: int = 2**30) -> Residency:
        device = Device(torch.device("cpu"), "float32", {"device": "cpu-test"}, memory_budget=budget)
        cache = WeightCache(self.store, self.folder / "cache")
        return Residency({CARD.id: CARD}, self.store, cache, device)

    def imported(self) -> Weights:
        versions = import_folder(self.catalog, self.store, CARD, self.source)
        return {name: version.digest for name, version in versions.items()}

    def retrained(self, version: int) -> Weights:
        """The same weights with another transformer."""
        transformer = FluxTransformer2DModel.from_pretrained(self.source / "transformer")
        transformer.load_state_dict(state(transformer, version))
        transformer.save_pretrained(self.source / "transformer")
        return self.imported()

    def adapted(self, base: Weights, seed: int) -> Weights:
        """A LoRA over the base's transformer."""
        instance = self.open().acquire(CARD.id, base)  # of a residency of its own: nothing is used here
        tensors = lora_tensors(instance, seed)
        file = write_lora(self.folder / f"lora-{seed}.safetensors", tensors)
        stored = put_component(self.store, "transformer", {file.name: file}, base=base["transformer"])
        return {**base, "transformer": stored.manifest.digest}

    def use(self, weights: Weights) -> Instance:
        """Acquire and release."""
        instance = self.residency.acquire(CARD.id, weights)
        self.residency.release(CARD.id, weights)
        return instance


@pytest.fixture
def shop(catalog: Catalog, store: ArtifactStore, tmp_path: Path) -> Shop:
    return Shop(catalog, store, tmp_path)


def shared(one: Instance, other: Instance) -> set[str]:
    return {name for name in one.components if one.components[name] is other.components[name]}


def memory(instance: Instance) -> int:
    tensors = (tensor for name in MODULES for tensor in instance.components[name].state_dict().values())
    return sum({tensor.data_ptr(): tensor.nbytes for tensor in tensors}.values())


def test_versions_share_what_they_pin_alike(shop: Shop) -> None:
    first, second = shop.imported(), shop.retrained(1)
    assert {name for name in first if first[name] != second[name]} == {"transformer"}
    one, two = shop.use(first), shop.use(second)
    assert shared(one, two) == set(one.components) - {"transformer"}
    assert shop.use(first) is one
    assert alone(one, request("r")) != alone(two, request("r"))

    transformer = sum(t.nbytes for t in two.components["transformer"].state_dict().values())
    files = sum(path.stat().st_size for path in shop.source.rglob("*") if path.suffix != ".safetensors")
    assert memory(one) + transformer <= shop.residency.size <= memory(one) + transformer + files


def test_a_new_version_is_loaded_beside_runs_that_end_on_the_old_one(shop: Shop) -> None:
    first = shop.imported()
    old = shop.residency.acquire(CARD.id, first)
    expected = alone(old, request("old"))
    engine = Engine()
    running = engine.submit(old, request("old"))
    engine.step()
    engine.step()

    second = shop.retrained(1)
    new = shop.residency.acquire(CARD.id, second)
    later = engine.submit(new, request("new"))
    while engine.step():
        pass
    assert content(running.result()) == expected
    assert running.result().weights == first
    assert later.result().weights == second
    assert content(later.result()) == alone(new, request("new")) != expected


def test_the_component_used_longest_ago_makes_way_and_shared_ones_stay(shop: Shop) -> None:
    first, second, third = shop.imported(), shop.retrained(1), shop.retrained(2)
    one = shop.use(first)
    # Room for two transformers beside the components that the versions share.
    transformer = sum(t.nbytes for t in one.components["transformer"].state_dict().values())
    shop.residency = shop.open(budget=int(shop.residency.size + 1.5 * transformer))
    one, two = shop.use(first), shop.use(second)
    assert shop.use(first) is one
    three = shop.use(third)
    assert shop.use(first) is one
    assert shared(one, three) == set(one.components) - {"transformer"}
    assert shop.use(second) is not two
    assert shared(shop.use(second), one) == set(one.components) - {"transformer"}, "nothing shared was lost"


def test_what_is_in_use_stays_whatever_the_budget(shop: Shop) -> None:
    first, second = shop.imported(), shop.retrained(1)
    shop.residency = shop.open(budget=1)
    held = shop.residency.acquire(CARD.id, first)
    other = shop.use(second)
    assert shared(held, other) == set(held.components) - {"transformer"}
    assert shop.residency.acquire(CARD.id, first) is held
    for _ in range(2):
        shop.residency.release(CARD.id, first)
    shop.residency.free(2**40)
    assert shop.use(first) is not held, "until nobody uses it"


def test_idle_memory_is_given_back_on_demand_and_only_so_much(shop: Shop) -> None:
    first, second = shop.imported(), shop.retrained(1)
    one, two = shop.use(first), shop.use(second)
    before = shop.residency.size
    freed = shop.residency.free(1)
    assert before - freed == shop.residency.size
    assert shop.use(second) is two, "only the older one had to go"
    assert shop.use(first) is not one
    shop.residency.free(2**40)
    assert shop.residency.size == 0


def test_an_adapter_is_served_over_its_base(shop: Shop) -> None:
    base = shop.imported()
    pinned = shop.adapted(base, 1)
    served, bare = shop.use(pinned), shop.use(base)
    assert shared(served, bare) == set(bare.components) - {"transformer"}
    assert served.weights == pinned

    file = shop.folder / "lora-1.safetensors"
    expected = with_adapter(bare, read_adapter([file], "transformer"), pinned["transformer"])
    for seed in range(2):
        assert alone(served, request("r", seed)) == alone(expected, request("r", seed))
    assert alone(served, request("r")) != alone(bare, request("r"))
    # Beside the base an adapter takes the layers it changes, and no more.
    changed = sum(bare.components["transformer"].get_parameter(f"{name}.weight").nbytes for name in TARGETS)
    alone_size = shop.residency.size
    shop.residency = shop.open()
    shop.use(base)
    lora = file.stat().st_size
    assert alone_size - shop.residency.size == changed < lora + changed


def test_adapters_stay_with_their_base_and_go_alone(shop: Shop) -> None:
    base = shop.imported()
    one, two = shop.adapted(base, 1), shop.adapted(base, 2)
    bare = shop.residency.acquire(CARD.id, base)
    first, second = shop.use(one), shop.use(two)
    assert shop.residency.free(1) > 0
    assert shop.use(two) is second
    assert shop.use(one) is not first
    assert shop.residency.acquire(CARD.id, base) is bare


def test_an_adapter_that_does_not_fit_names_both_versions(shop: Shop) -> None:
    base = shop.imported()
    tensors = lora_tensors(shop.use(base), 1)
    tensors["transformer.no.such.lora_A.weight"] = torch.zeros(2, 8)
    tensors["transformer.no.such.lora_B.weight"] = torch.zeros(8, 2)
    file = write_lora(shop.folder / "lora.safetensors", tensors)
    stored = put_component(shop.store, "transformer", {file.name: file}, base=base["transformer"])
    pinned = {**base, "transformer": stored.manifest.digest}
    line = (
        f"^transformer {pinned['transformer'][:12]} over {base['transformer'][:12]}: adapter tensor "
        r"transformer\.no\.such\.lora_A\.weight has no counterpart"
    )
    before = shop.residency.size
    with pytest.raises(InvalidAdapter, match=line):
        shop.use(pinned)
    assert shop.residency.size == before, "and nothing of it stays"
