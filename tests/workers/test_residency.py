"""Which instances and components stay. Loading is the card's business: here, a stand-in that counts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mutoscope.platform.artifacts import ArtifactStore, manifest
from mutoscope.platform.artifacts.manifest import ComponentManifest, ManifestFile
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.errors import ArtifactMissing, InvalidFolder
from mutoscope.platform.orchestration.importing import put_recipe
from mutoscope.workers import parts
from mutoscope.workers.device import Device
from mutoscope.workers.residency import Residency
from mutoscope.workers.weight_cache import WeightCache
from tests.support.tinycard.card import CARD, TinyRecipe

torch = pytest.importorskip("torch")

SIZE = 1000
RECIPE = TinyRecipe(height=4, width=4, num_inference_steps=3, guidance_scale=1.0, max_sequence_length=1)


class Loader:
    """Stands in for `load_components`; fails as often as told."""

    def __init__(self) -> None:
        self.loaded: list[dict[str, str]] = []
        self.failures: list[Exception] = []

    def __call__(self, card: Any, paths: Mapping[str, Path], **given: Any) -> dict[str, object]:
        if self.failures:
            raise self.failures.pop()
        assert given == {"device": torch.device("cpu"), "dtype": torch.float32}
        assert all((path / "weights").stat().st_size == SIZE for path in paths.values())
        self.loaded.append({name: path.name for name, path in paths.items()})
        return {name: object() for name in paths}


class Shelf:
    """A residency with room for two instances, and weights to fill it."""

    def __init__(self, folder: Path) -> None:
        self.store = ArtifactStore.open(f"file://{folder}/store")
        device = Device(torch.device("cpu"), "float32", {"device": "cpu-test"}, memory_budget=2 * SIZE)
        self.residency = Residency(
            {CARD.id: CARD}, self.store, WeightCache(self.store, folder / "cache"), device
        )

    def weights(self, version: int) -> dict[str, str]:
        """The pinned digests of a version; the same each time."""
        file = self.store.put(bytes([version]) * SIZE, kind="blob", media_type="application/octet-stream")
        listed = ComponentManifest("net", (ManifestFile("weights", file.digest, file.size),))
        net = self.store.put(listed.to_bytes(), kind=manifest.KIND, media_type=manifest.MEDIA_TYPE)
        return {"net": net.digest, "recipe": put_recipe(self.store, RECIPE).digest}

    def use(self, version: int) -> Instance:
        """Acquire and release."""
        instance = self.residency.acquire(CARD.id, self.weights(version))
        self.residency.release(CARD.id, self.weights(version))
        return instance


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch) -> Loader:
    loader = Loader()
    monkeypatch.setattr(parts, "load_components", loader)
    return loader


def test_an_instance_is_loaded_once_with_its_recipe(shelf: Shelf, loader: Loader) -> None:
    instance = shelf.use(1)
    assert shelf.use(1) is instance
    assert loader.loaded == [{"net": shelf.weights(1)["net"]}]
    assert instance.recipe == RECIPE
    assert instance.dtype == torch.float32
    assert instance.weights == shelf.weights(1)


def test_versions_are_resident_side_by_side(shelf: Shelf, loader: Loader) -> None:
    one, two = shelf.use(1), shelf.use(2)
    assert one is not two
    assert (shelf.use(1), shelf.use(2)) == (one, two)
    assert shelf.residency.weights() == {CARD.id: shelf.weights(2)}, "the one used last"


def test_the_least_recently_used_makes_way(shelf: Shelf, loader: Loader) -> None:
    one, two = shelf.use(1), shelf.use(2)
    assert shelf.use(1) is one
    shelf.use(3)
    assert shelf.use(1) is one
    assert shelf.use(2) is not two, "2 had gone longest without use"


def test_what_is_in_use_stays_even_over_the_budget(shelf: Shelf, loader: Loader) -> None:
    held = [shelf.residency.acquire(CARD.id, shelf.weights(version)) for version in (1, 2)]
    shelf.use(3)
    assert [shelf.use(version) for version in (1, 2)] == held


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("no room"), MemoryError()])
def test_out_of_memory_while_loading_clears_what_is_idle(
    shelf: Shelf, loader: Loader, error: Exception
) -> None:
    one = shelf.use(1)
    loader.failures = [error]
    two = shelf.use(2)
    assert shelf.use(2) is two
    assert shelf.use(1) is not one


def test_out_of_memory_with_nothing_idle_is_an_error(shelf: Shelf, loader: Loader) -> None:
    held = shelf.residency.acquire(CARD.id, shelf.weights(1))
    loader.failures = [torch.OutOfMemoryError("no room")]
    with pytest.raises(torch.OutOfMemoryError):
        shelf.use(2)
    assert shelf.use(1) is held
    assert shelf.use(2) is not None, "and a later attempt starts afresh"


def test_pins_that_cannot_be_met(shelf: Shelf, loader: Loader) -> None:
    without_recipe = {"net": shelf.weights(1)["net"]}
    with pytest.raises(InvalidFolder, match="pins no recipe"):
        shelf.residency.acquire(CARD.id, without_recipe)
    with pytest.raises(ArtifactMissing):
        shelf.residency.acquire(CARD.id, {**shelf.weights(1), "net": "0" * 64})
    assert loader.loaded == []
