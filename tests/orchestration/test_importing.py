"""Weights import on the test card; no torch."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.artifacts.assembly import write_file
from mutoscope.platform.artifacts.manifest import ComponentManifest, ManifestFile, iter_members
from mutoscope.platform.artifacts.tensors import open_tensors
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.errors import InvalidFolder, StoreUnwritable
from mutoscope.platform.orchestration import importing
from mutoscope.platform.orchestration.importing import import_folder, read_recipe
from tests.support.tinycard.card import CARD
from tests.support.tinycard.folder import WEIGHTS, write_folder


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    url = f"sqlite:///{tmp_path}/catalog.db"
    Catalog.migrate(url)
    catalog = Catalog.open(url)
    yield catalog
    catalog.close()


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore.open(f"file://{tmp_path}/store")


def is_blank(catalog: Catalog) -> bool:
    return not (catalog.runs.list() or catalog.weights.list() or catalog.artifacts.list())


def test_a_folder_becomes_live_versions(catalog: Catalog, store: ArtifactStore, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "folder", num_inference_steps=5)
    versions = import_folder(catalog, store, CARD, folder)

    assert {name: str(version) for name, version in versions.items()} == {
        "net": "tiny-test/net@1",
        "recipe": "tiny-test/recipe@1",
    }
    assert catalog.weights.live(CARD.id) == versions
    manifest = ComponentManifest.parse(store.get(versions["net"].digest))
    for file in manifest.files:
        write_file(store, file, tmp_path / file.path)
        assert (tmp_path / file.path).read_bytes() == (folder / "net" / file.path).read_bytes()
    assert [file.path for file in manifest.files] == ["config.json", "weights.safetensors"]
    assert read_recipe(store, CARD, versions["recipe"].digest).num_inference_steps == 5


def test_the_import_is_a_run_that_generated_the_components(
    catalog: Catalog, store: ArtifactStore, tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "folder")
    versions = import_folder(catalog, store, CARD, folder)
    (run,) = catalog.runs.list()
    assert (run.kind, run.card, run.state) == ("import", CARD.id, "succeeded")
    assert run.parameters == {"folder": str(folder), "origin": "user"}
    generated = catalog.runs.outputs(run.id)
    assert {role: ref.kind for role, ref in generated.items()} == {
        "weights:net": "weights",
        "weights:recipe": "json",
    }
    assert {role: ref.digest for role, ref in generated.items()} == {
        f"weights:{name}": version.digest for name, version in versions.items()
    }
    assert {version.produced_by_run for version in versions.values()} == {run.id}


def test_every_byte_has_a_row_that_the_manifest_leads_to(
    catalog: Catalog, store: ArtifactStore, tmp_path: Path
) -> None:
    versions = import_folder(catalog, store, CARD, write_folder(tmp_path / "folder"))
    digest = versions["net"].digest
    members = catalog.audit.members(digest)
    listed = iter_members(ComponentManifest.parse(store.get(digest)))
    assert members == {member.path: member.digest for member in listed}
    assert sorted(members) == ["config.json", "weights.safetensors/header", "weights.safetensors/packs/0"]
    known = {*members.values(), *(version.digest for version in versions.values())}
    assert set(store.digests()) == known
    assert {catalog.artifacts.state(one) for one in known} == {"present"}


def test_the_import_announces_its_writing(
    catalog: Catalog, store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, str]] = []
    put = ArtifactStore.put

    def noting(self: ArtifactStore, *arguments: Any, **named: Any) -> Any:
        seen.extend((lease.kind, lease.holder) for lease in catalog.leases.list())
        return put(self, *arguments, **named)

    monkeypatch.setattr(ArtifactStore, "put", noting)
    import_folder(catalog, store, CARD, write_folder(tmp_path / "folder"))
    assert set(seen) == {("writer", "import of folder for tiny-test")}, "every byte was put under the lease"
    assert catalog.leases.list() == []


def test_the_same_bytes_again_change_nothing(catalog: Catalog, store: ArtifactStore, tmp_path: Path) -> None:
    first = import_folder(catalog, store, CARD, write_folder(tmp_path / "here"))
    second = import_folder(catalog, store, CARD, write_folder(tmp_path / "elsewhere"))
    assert second == first
    assert len(catalog.runs.list()) == 1


def test_the_same_bytes_again_repair_the_store(
    catalog: Catalog, store: ArtifactStore, tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "folder")
    versions = import_folder(catalog, store, CARD, folder)
    path = store.local_path(versions["net"].digest)
    assert path is not None
    path.chmod(0o644)
    path.write_bytes(b"damaged")
    import_folder(catalog, store, CARD, folder)
    assert ComponentManifest.parse(store.get(versions["net"].digest)).component == "net"


def test_weights_of_the_first_format_stay_what_they_are(
    catalog: Catalog, store: ArtifactStore, tmp_path: Path
) -> None:
    """A home from before files were split: its version is readable; importing the folder makes a new one."""
    folder = write_folder(tmp_path / "folder")
    paths = {"config.json": folder / "net/config.json", "weights.safetensors": folder / WEIGHTS}
    files = {
        path: store.put(source, kind="blob", media_type="application/octet-stream")
        for path, source in paths.items()
    }
    listed = ComponentManifest(
        "net", tuple(ManifestFile(path, ref.digest, ref.size) for path, ref in files.items())
    )
    old = store.put(listed.to_bytes(), kind="weights", media_type="application/json")
    catalog.artifacts.record(old)
    catalog.weights.publish(CARD.id, "net", old.digest)
    assert import_folder(catalog, store, CARD, folder)["net"].ordinal == 2
    assert catalog.weights.get(f"{CARD.id}/net@1").digest == old.digest
    manifest = ComponentManifest.parse(store.get(old.digest))
    assert manifest == listed
    assert np.array_equal(open_tensors(store, manifest)["matrix"], load_file(folder / WEIGHTS)["matrix"])


def test_only_what_changed_gets_a_new_version(catalog: Catalog, store: ArtifactStore, tmp_path: Path) -> None:
    before = import_folder(catalog, store, CARD, write_folder(tmp_path / "first"))
    after = import_folder(catalog, store, CARD, write_folder(tmp_path / "second", seed=1))
    assert str(after["net"]) == "tiny-test/net@2"
    assert after["recipe"] == before["recipe"]
    back = import_folder(catalog, store, CARD, tmp_path / "first")
    assert (str(back["net"]), back["net"].digest) == ("tiny-test/net@3", before["net"].digest)


def test_a_damaged_folder_leaves_nothing_behind(
    catalog: Catalog, store: ArtifactStore, tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "folder")
    (folder / WEIGHTS).unlink()
    with pytest.raises(InvalidFolder, match=r"weights\.safetensors is missing"):
        import_folder(catalog, store, CARD, folder)
    assert is_blank(catalog)
    assert list(store.digests()) == []


def test_a_file_that_vanishes_meanwhile_leaves_no_rows(
    catalog: Catalog, store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_folder(tmp_path / "folder")
    inspect = CARD.inspect
    monkeypatch.setattr(
        type(CARD), "inspect", lambda card, path: (inspect(path), (folder / WEIGHTS).unlink())[0]
    )
    with pytest.raises(InvalidFolder, match="is missing"):
        import_folder(catalog, store, CARD, folder)
    assert is_blank(catalog)


def test_a_crash_before_publication_changes_no_live_weights(
    catalog: Catalog, store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = import_folder(catalog, store, CARD, write_folder(tmp_path / "first"))
    second = write_folder(tmp_path / "second", seed=1, num_inference_steps=9)

    def crash(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(catalog.weights, "publish_all", crash)
        with pytest.raises(KeyboardInterrupt):
            import_folder(catalog, store, CARD, second)
    assert catalog.weights.live(CARD.id) == before
    after = import_folder(catalog, store, CARD, second)
    assert [version.ordinal for version in after.values()] == [2, 2]


def test_a_component_the_new_folder_lacks_is_retired(
    catalog: Catalog, store: ArtifactStore, tmp_path: Path
) -> None:
    first = import_folder(catalog, store, CARD, write_folder(tmp_path / "first"))
    extra = catalog.weights.publish(CARD.id, "image_encoder", first["net"].digest)
    assert set(catalog.weights.live(CARD.id)) == {"net", "recipe", "image_encoder"}
    after = import_folder(catalog, store, CARD, tmp_path / "first")
    assert set(catalog.weights.live(CARD.id)) == set(after) == {"net", "recipe"}
    assert catalog.weights.get(str(extra)) == extra, "the version itself stays"


def test_a_store_that_refuses_is_said_before_anything_is_recorded(catalog: Catalog, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = ArtifactStore.open(f"file://{tmp_path}/file/store")
    with pytest.raises(StoreUnwritable):
        import_folder(catalog, store, CARD, write_folder(tmp_path / "folder"))
    assert is_blank(catalog)


def test_recipes_are_stored_canonically(store: ArtifactStore) -> None:
    one = CARD.recipe(height=4, width=4, num_inference_steps=3, guidance_scale=1.5, max_sequence_length=1)
    two = CARD.recipe(**dict(reversed(list(one.model_dump().items()))))
    assert importing.put_recipe(store, one).digest == importing.put_recipe(store, two).digest
    data = store.get(importing.put_recipe(store, one).digest)
    assert list(json.loads(data)) == sorted(json.loads(data))


def test_importing_needs_no_torch() -> None:
    code = "import sys, mutoscope.platform.orchestration.importing; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
