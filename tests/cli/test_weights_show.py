"""weights show: files and tensors of a version, as they were imported."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.artifacts.components import put_component
from mutoscope.platform.artifacts.manifest import ComponentManifest
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.custody.tie import tie
from mutoscope.platform.refs import ArtifactRef
from tests.cli.conftest import Command
from tests.support.safetensors import checkpoint, saved

MODEL = saved(checkpoint(1, large=2, small=3))
CONFIG = b'{"_class_name": "Net"}'


def publish(catalog: Catalog, ref: ArtifactRef, members: Any = None) -> None:
    catalog.runs.record_completed(
        "import", generated={"weights:net": ref}, members={ref.digest: members or {}}
    )
    catalog.weights.publish("flux-t2i", "net", ref.digest)


@pytest.fixture
def imported(catalog: Catalog, store: ArtifactStore) -> ArtifactRef:
    tie(catalog, store)
    stored = put_component(store, "net", {"model.safetensors": MODEL, "config.json": CONFIG})
    publish(catalog, stored.manifest, stored.members)
    return stored.manifest


def shown(mutoscope: Command, version: str = "flux-t2i/net@live") -> dict[str, Any]:
    described: dict[str, Any] = json.loads(mutoscope("weights", "show", version, "--json").out)
    return described


def test_files_are_listed_with_their_sizes(imported: ArtifactRef, mutoscope: Command) -> None:
    out = mutoscope("weights", "show", "flux-t2i/net@1").out
    (config,) = [line for line in out.splitlines() if line.startswith("config.json")]
    assert config.split(maxsplit=3) == ["config.json", str(len(CONFIG)), "B", "one object"]
    (model,) = [line for line in out.splitlines() if line.startswith("model.safetensors")]
    # Two matrices, a pack of three vectors, the header.
    assert "5 tensors in 4 objects" in model
    assert "blocks.0.weight" not in out


def test_tensors_are_listed_when_asked_for(imported: ArtifactRef, mutoscope: Command) -> None:
    lines = mutoscope("weights", "show", "flux-t2i/net@1", "--tensors").out.splitlines()
    (tensor,) = [line for line in lines if "blocks.1.weight" in line]
    assert tensor.split(maxsplit=4) == ["·", "blocks.1.weight", "256.0", "KiB", "F32 [256, 256]"]


def test_all_of_it_is_there_as_data(imported: ArtifactRef, mutoscope: Command) -> None:
    described = shown(mutoscope)
    assert described["base"] is None
    config, model = described["files"]
    assert (config["path"], config["size"], config["tensors"]) == ("config.json", len(CONFIG), None)
    assert (model["path"], model["size"], model["objects"]) == ("model.safetensors", len(MODEL), 4)
    assert {one["name"]: (one["dtype"], one["shape"], one["size"]) for one in model["tensors"]} == {
        name: ("F32", list(array.shape), array.nbytes)
        for name, array in checkpoint(1, large=2, small=3).items()
    }


def test_an_adapter_names_its_base(
    imported: ArtifactRef, catalog: Catalog, store: ArtifactStore, mutoscope: Command
) -> None:
    tie(catalog, store)
    stored = put_component(store, "net", {"a.safetensors": saved(checkpoint(2))}, base=imported.digest)
    parent = catalog.weights.get("flux-t2i/net@1")
    run = catalog.runs.record_completed(
        "train", generated={"net": stored.manifest}, members={stored.manifest.digest: stored.members}
    )
    catalog.weights.publish("flux-t2i", "net", stored.manifest.digest, run.id, parent)
    described = shown(mutoscope, "flux-t2i/net@2")
    assert (described["base"], described["parent"]) == (imported.digest, parent.id)
    assert f"an adapter for {imported.digest[:12]}" in mutoscope("weights", "show", "flux-t2i/net@2").out


def test_a_version_whose_bytes_are_gone_is_still_shown(
    imported: ArtifactRef, store: ArtifactStore, mutoscope: Command
) -> None:
    path = store.local_path(imported.digest)
    assert path is not None
    path.unlink()
    described = shown(mutoscope)
    assert described["digest"] == imported.digest
    assert described["files"] is None
    assert mutoscope("weights", "show", "flux-t2i/net@1").code == 0


def test_what_is_no_component_has_no_files(
    catalog: Catalog, store: ArtifactStore, mutoscope: Command
) -> None:
    publish(catalog, store.put(b'{"height":64}', kind="json", media_type="application/json"))
    assert shown(mutoscope)["files"] is None


def test_a_component_without_files_says_so(
    catalog: Catalog, store: ArtifactStore, mutoscope: Command
) -> None:
    empty = ComponentManifest("net", ()).to_bytes()
    publish(catalog, store.put(empty, kind="weights", media_type="application/json"))
    assert "no files" in mutoscope("weights", "show", "flux-t2i/net@1").out
