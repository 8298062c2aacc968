"""Component manifests: canonical, readable from the first format on, and safe to unpack."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from mutoscope.platform.artifacts.manifest import (
    BASE_MEMBER,
    ComponentManifest,
    ManifestFile,
    Member,
    Part,
    Split,
    StoredTensor,
    is_manifest,
    iter_members,
)
from mutoscope.platform.errors import ArtifactCorrupt

A = ManifestFile("config.json", "a" * 64, 2)
B = ManifestFile("shards/model-1.safetensors", "b" * 64, 7000)
SPLIT = ManifestFile(
    "model.safetensors",
    "c" * 64,
    70_112,
    Split(
        Part("d" * 64, 100),
        (
            StoredTensor("weight", "F16", (5, 7000), "e" * 64, 70_000),
            StoredTensor("bias", "F32", (2,), "f" * 64, 8, pack=0, offset=0),
            StoredTensor("scale", "F32", (), "0" * 64, 4, pack=0, offset=8),
        ),
        (Part("1" * 64, 12),),
    ),
)


def test_the_order_of_files_does_not_matter() -> None:
    one, two = ComponentManifest("vae", (A, B, SPLIT)), ComponentManifest("vae", (SPLIT, B, A))
    assert one == two
    assert one.to_bytes() == two.to_bytes()


@pytest.mark.parametrize(
    "manifest",
    [
        ComponentManifest("vae", (A, B)),
        ComponentManifest("vae", (A, SPLIT)),
        ComponentManifest("vae", (SPLIT,), base="2" * 64),
        ComponentManifest("vae", (A,), base="2" * 64),
        ComponentManifest("vae", ()),
    ],
    ids=["plain", "split", "adapter", "plain adapter", "empty"],
)
def test_it_is_read_as_it_was_written(manifest: ComponentManifest) -> None:
    assert ComponentManifest.parse(manifest.to_bytes()) == manifest
    assert is_manifest(manifest.to_bytes())


def test_sizes_are_those_of_the_files() -> None:
    assert ComponentManifest("vae", (A, B, SPLIT), base="2" * 64).total_size == 2 + 7000 + 70_112


def test_members_are_objects_each_under_a_path_of_its_own() -> None:
    manifest = ComponentManifest("vae", (A, SPLIT), base="2" * 64)
    assert list(iter_members(manifest)) == [
        Member(BASE_MEMBER, "2" * 64, None),
        Member("config.json", "a" * 64, 2),
        Member("model.safetensors/header", "d" * 64, 100),
        Member("model.safetensors/packs/0", "1" * 64, 12),
        Member("model.safetensors/tensors/weight", "e" * 64, 70_000),
    ]


def test_a_recipe_is_no_manifest() -> None:
    assert not is_manifest(b'{"format":"png","height":64}')


@pytest.mark.parametrize("path", ["../escape", "/etc/passwd", "a/../../b", "", "a\\b", ":base"])
def test_a_path_out_of_the_folder_is_refused(path: str) -> None:
    data = ComponentManifest("vae", (ManifestFile(path, "a" * 64, 1),)).to_bytes()
    with pytest.raises(ArtifactCorrupt, match="leaves the component's folder"):
        ComponentManifest.parse(data)


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff", b"[]", b"{}", json.dumps({"format": "mutoscope.component/1", "files": []}).encode()],
)
def test_anything_else_is_no_manifest(data: bytes) -> None:
    with pytest.raises(ArtifactCorrupt, match="not a component manifest"):
        ComponentManifest.parse(data)


def test_a_format_to_come_is_named() -> None:
    with pytest.raises(ArtifactCorrupt, match=r"mutoscope\.component/3"):
        ComponentManifest.parse(json.dumps({"format": "mutoscope.component/3"}).encode())


Edit = Callable[[dict[str, Any]], Any]

LIES: dict[str, tuple[Edit, str]] = {
    "sizes": (lambda file: file["tensors"][0].update(size=1), "do not add up to its 70112 bytes"),
    "pack": (lambda file: file["tensors"][1].update(pack=1), "tensor bias lies outside its pack"),
    "pack from the end": (lambda file: file["tensors"][1].update(pack=-1), "tensor bias lies outside"),
    "offset": (lambda file: file["tensors"][2].update(offset=9), "tensor scale lies outside its pack"),
    "offset before": (lambda file: file["tensors"][2].update(offset=-1), "tensor scale lies outside"),
    "digest": (lambda file: file["tensors"][0].update(digest="../x"), "is no SHA-256"),
    "header": (lambda file: file.pop("header"), "header"),
    "packs": (lambda file: file.pop("packs"), "packs"),
    "shape": (lambda file: file["tensors"][0].update(shape=["wide"]), "not a component manifest"),
}


@pytest.mark.parametrize("lie", LIES)
def test_parts_that_do_not_make_up_their_file_are_refused(lie: str) -> None:
    body = json.loads(ComponentManifest("vae", (SPLIT,)).to_bytes())
    edit, reason = LIES[lie]
    edit(body["files"][0])
    with pytest.raises(ArtifactCorrupt, match=reason):
        ComponentManifest.parse(json.dumps(body).encode())
