"""LoRA files as weight versions: by component, over their base, or refused before anything is stored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from diffusers import FluxPipeline

from mutoscope.models.flux.card import CARD
from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.artifacts.manifest import BASE_MEMBER, ComponentManifest
from mutoscope.platform.artifacts.tensors import open_tensors, shapes_of
from mutoscope.platform.catalog import Catalog, WeightVersion
from mutoscope.platform.engine.adapters import read_adapter
from mutoscope.platform.errors import InvalidAdapter, InvalidParameter, MutoscopeError, UnknownReference
from mutoscope.platform.orchestration.adapting import import_adapter
from mutoscope.platform.orchestration.importing import import_folder
from mutoscope.workers.weight_cache import WeightCache
from tests.support.tiny_flux import save_tiny_flux
from tests.support.versions import lora_tensors, named, write_lora

TEXT = ("encoder.block.0.layer.0.SelfAttention.q",)


class Shop:
    def __init__(self, catalog: Catalog, store: ArtifactStore, folder: Path) -> None:
        self.catalog, self.store, self.folder = catalog, store, folder
        self.source = save_tiny_flux(folder / "source")
        self.instance = named(self.source)
        self.live = import_folder(catalog, store, CARD, self.source)

    def file(self, seed: int = 1, *, both: bool = False, **metadata: object) -> Path:
        """A LoRA of the transformer, or of it and of T5."""
        tensors = lora_tensors(self.instance, seed)
        if both:
            tensors |= lora_tensors(self.instance, seed, component="text_encoder_2", targets=TEXT)
        described = {"lora_adapter_metadata": json.dumps(metadata)} if metadata else None
        return write_lora(self.folder / f"lora-{seed}.safetensors", tensors, described)

    def take(self, file: Path, alias: str = "my-style", **given: str) -> dict[str, WeightVersion]:
        return import_adapter(self.catalog, self.store, CARD, file, alias=alias, **given)  # type: ignore[arg-type]

    def manifest(self, version: WeightVersion) -> ComponentManifest:
        return ComponentManifest.parse(self.store.get(version.digest))

    def objects(self) -> set[str]:
        return {stored.digest for stored in self.store.inventory()}


@pytest.fixture
def shop(catalog: Catalog, store: ArtifactStore, tmp_path: Path) -> Shop:
    return Shop(catalog, store, tmp_path)


def test_an_adapter_is_a_version_over_its_base_under_an_alias_of_its_own(shop: Shop) -> None:
    file = shop.file()
    (version,) = shop.take(file).values()
    base = shop.live["transformer"]
    assert (str(version), version.parent_id) == ("flux-t2i/transformer@2", base.id)
    assert shop.manifest(version).base == base.digest
    assert shop.catalog.weights.live(CARD.id) == shop.live, "what runs use unasked has not changed"
    assert shop.catalog.weights.aliased(CARD.id, "my-style") == {"transformer": version}
    (run,) = shop.catalog.runs.generated_by(version.digest)
    assert (run.kind, run.parameters["adapter"]) == ("import", str(file))
    assert shop.catalog.runs.weights(run.id) == {"transformer": base.digest}
    assert shop.catalog.audit.members(version.digest)[BASE_MEMBER] == base.digest


def test_diffusers_opens_what_is_stored(shop: Shop, tmp_path: Path) -> None:
    (version,) = shop.take(shop.file()).values()
    *_, own = WeightCache(shop.store, tmp_path / "cache").layers(version.digest)
    read = FluxPipeline.lora_state_dict(own)
    expected = lora_tensors(shop.instance, 1)
    assert set(read) == set(expected)
    assert all(read[name].equal(tensor) for name, tensor in expected.items())


def test_a_file_for_two_components_becomes_two_versions(shop: Shop, tmp_path: Path) -> None:
    file = shop.file(both=True, **{"text_encoder_2.lora_alpha": 8})
    versions = shop.take(file)
    assert set(versions) == {"transformer", "text_encoder_2"}
    for name, version in versions.items():
        manifest = shop.manifest(version)
        own = {tensor.name for part in manifest.files if part.split for tensor in part.split.tensors}
        assert own
        assert all(tensor.startswith(f"{name}.") for tensor in own)
        assert manifest.base == shop.live[name].digest
    folder = WeightCache(shop.store, tmp_path / "cache").folder(versions["text_encoder_2"].digest)
    (change,) = read_adapter(list(folder.glob("*.safetensors")), "text_encoder_2").changes.values()
    assert change.scale == 4.0, "the metadata came along"
    assert set(shop.take(file, alias="text-only", component="text_encoder_2")) == {"text_encoder_2"}


def test_the_same_again_changes_nothing_and_another_takes_the_alias_over(shop: Shop) -> None:
    first = shop.take(shop.file(both=True))
    runs = len(shop.catalog.runs.list(card=CARD.id))
    assert shop.take(shop.file(both=True)) == first
    assert len(shop.catalog.runs.list(card=CARD.id)) == runs
    second = shop.take(shop.file(2))
    assert str(second["transformer"]) == "flux-t2i/transformer@3"
    assert shop.catalog.weights.aliased(CARD.id, "my-style") == second, "the text encoder's is retired"


def test_an_adapter_may_name_an_earlier_base(shop: Shop) -> None:
    moved = {name: tensor + 1 for name, tensor in shop.instance.components["vae"].state_dict().items()}
    shop.instance.components["vae"].load_state_dict(moved)
    shop.instance.components["vae"].save_pretrained(shop.source / "vae")
    import_folder(shop.catalog, shop.store, CARD, shop.source)
    (version,) = shop.take(shop.file(), base="flux-t2i/transformer@1").values()
    assert shop.manifest(version).base == shop.live["transformer"].digest


def test_shapes_are_read_without_tensors(shop: Shop) -> None:
    (version,) = shop.take(shop.file()).values()
    manifest = shop.manifest(version)
    shapes = shapes_of(shop.store, manifest)
    tensors = open_tensors(shop.store, manifest)
    assert shapes == {name: tuple(tensors[name].shape) for name in tensors}


@pytest.mark.parametrize(
    ("given", "error", "line"),
    [
        (
            {"alias": "live"},
            InvalidParameter,
            "alias='live' is not valid: give the adapter an alias of its",
        ),
        ({"alias": "12"}, InvalidParameter, "alias='12' is not valid"),
        (
            {"component": "unet"},
            InvalidParameter,
            "component='unet' is not valid: flux-t2i has transformer, v",
        ),
        ({"component": "vae"}, InvalidAdapter, "the adapter changes transformer, not vae"),
        ({"base": "flux-t2i/vae@1"}, InvalidParameter, "name a version of flux-t2i/transformer"),
        ({"base": "flux-t2i/transformer@9"}, UnknownReference, "no weights are named"),
    ],
    ids=str,
)
def test_what_cannot_be_imported_so(
    shop: Shop, given: dict[str, str], error: type[MutoscopeError], line: str
) -> None:
    with pytest.raises(error, match=line):
        shop.take(shop.file(), **given)


@pytest.mark.parametrize(
    ("tensors", "line"),
    [
        ({"lora_unet_x.lora_down.weight": (2, 8)}, "named as other trainers do"),
        (
            {"unet.x.lora_A.weight": (2, 8), "unet.x.lora_B.weight": (8, 2)},
            "the adapter changes unet, and fl",
        ),
        (
            {"transformer.x_embedder.lora_A.weight": (2, 7), "transformer.x_embedder.lora_B.weight": (32, 2)},
            r"changes a weight \[32, 7\] where its base has \[32, 16\]: .* \(base flux-t2i/transformer@1\)$",
        ),
        (
            {"transformer.no.lora_A.weight": (2, 8), "transformer.no.lora_B.weight": (8, 2)},
            r"has no counterpart no.weight in its base",
        ),
    ],
    ids=["kohya", "another card", "shape", "layer"],
)
def test_a_file_that_does_not_fit_is_refused_before_anything_is_stored(
    shop: Shop, tensors: dict[str, tuple[int, ...]], line: str
) -> None:
    file = write_lora(shop.folder / "bad.safetensors", {n: torch.zeros(s) for n, s in tensors.items()})
    before = shop.objects()
    with pytest.raises(InvalidAdapter, match=line):
        shop.take(file)
    assert shop.objects() == before


def test_files_that_are_none(shop: Shop) -> None:
    broken = shop.folder / "broken.safetensors"
    broken.write_bytes(b"no")
    with pytest.raises(InvalidAdapter, match=r"is truncated or no safetensors file \(2 bytes\): give a"):
        shop.take(broken)
    with pytest.raises(InvalidAdapter, match=r"cannot be read \(No such file or directory\): give a safe"):
        shop.take(shop.folder / "absent")


def test_a_card_without_weights_has_no_base(catalog: Catalog, store: ArtifactStore, tmp_path: Path) -> None:
    tensors = lora_tensors(named(save_tiny_flux(tmp_path / "source")), 1)
    file = write_lora(tmp_path / "lora.safetensors", tensors)
    with pytest.raises(
        UnknownReference, match="card flux-t2i has no transformer: use `mutoscope weights imp"
    ):
        import_adapter(catalog, store, CARD, file, alias="x")
