"""Component manifests: canonical, and safe to unpack."""

from __future__ import annotations

import json

import pytest

from mutoscope.platform.artifacts.manifest import ComponentManifest, ManifestFile
from mutoscope.platform.errors import ArtifactCorrupt
from mutoscope.platform.ids import sha256

A = ManifestFile("config.json", "a" * 64, 2)
B = ManifestFile("shards/model-1.safetensors", "b" * 64, 7000)


def test_bytes_are_canonical_and_golden() -> None:
    one, two = ComponentManifest("vae", (A, B)), ComponentManifest("vae", (B, A))
    assert one.to_bytes() == two.to_bytes()
    # Weight versions are digests of these bytes: another encoding would make every imported weight a new one.
    assert sha256(one.to_bytes()) == "0a9fcaa588343a877dfb824bfc3ab14faf044540445603ab159397a44aa2bc2f"
    assert ComponentManifest.parse(one.to_bytes()) == one
    assert one.total_size == 7002


@pytest.mark.parametrize("path", ["../escape", "/etc/passwd", "a/../../b", "", "a\\b"])
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


def test_another_format_is_named() -> None:
    with pytest.raises(ArtifactCorrupt, match=r"mutoscope\.component/2"):
        ComponentManifest.parse(json.dumps({"format": "mutoscope.component/2"}).encode())
