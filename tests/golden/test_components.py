"""What checkpoints and trajectories are stored as, pinned for good.

A weight version is the digest of a manifest. If equal files came to be cut, packed or listed otherwise, every
import would make new versions of weights that nobody has changed.
"""

from __future__ import annotations

import json

import numpy as np

from mutoscope.platform.artifacts import ArtifactStore, codecs
from mutoscope.platform.artifacts.components import put_component
from mutoscope.platform.artifacts.manifest import ComponentManifest, ManifestFile
from mutoscope.platform.ids import new_id, sha256
from mutoscope.platform.tensorfile import build_header
from mutoscope.platform.trajectory import TrajectoryFacts, TrajectoryGroup, TrajectorySample


def a_file() -> bytes:
    """One tensor of 64 KiB and two below, written by hand: the library's header may change."""
    header = build_header(
        [("b", "F32", (2,), 8), ("w", "U8", (256, 256), 65536), ("a", "F32", (), 4)], {"format": "pt"}
    )
    return header + bytes(range(8)) + bytes(range(256)) * 256 + b"abcd"


def test_a_component_of_plain_files_is_what_it_was_in_the_first_format() -> None:
    manifest = ComponentManifest(
        "vae",
        (
            ManifestFile("config.json", "a" * 64, 2),
            ManifestFile("shards/model-1.safetensors", "b" * 64, 7000),
        ),
    )
    assert sha256(manifest.to_bytes()) == "0a9fcaa588343a877dfb824bfc3ab14faf044540445603ab159397a44aa2bc2f"


def test_a_split_component() -> None:
    store = ArtifactStore.open(f"memory://{new_id()}")
    stored = put_component(store, "net", {"model.safetensors": a_file(), "config.json": b"{}"})
    assert stored.manifest.digest == "96c18dc44ae6c08247c50cbc60307237c20ee141fdcf277f0f31049bcbd588e2"
    assert json.loads(store.get(stored.manifest.digest)) == {
        "component": "net",
        "files": [
            {"digest": sha256(b"{}"), "path": "config.json", "size": 2},
            {
                "digest": sha256(a_file()),
                "header": {"digest": sha256(a_file()[: -65536 - 12]), "size": len(a_file()) - 65536 - 12},
                "packs": [{"digest": sha256(bytes(range(8)) + b"abcd"), "size": 12}],
                "path": "model.safetensors",
                "size": len(a_file()),
                "tensors": [
                    {
                        "digest": sha256(bytes(range(8))),
                        "dtype": "F32",
                        "name": "b",
                        "offset": 0,
                        "pack": 0,
                        "shape": [2],
                        "size": 8,
                    },
                    {
                        "digest": sha256(bytes(range(256)) * 256),
                        "dtype": "U8",
                        "name": "w",
                        "shape": [256, 256],
                        "size": 65536,
                    },
                    {
                        "digest": sha256(b"abcd"),
                        "dtype": "F32",
                        "name": "a",
                        "offset": 8,
                        "pack": 0,
                        "shape": [],
                        "size": 4,
                    },
                ],
            },
        ],
        "format": "mutoscope.component/2",
    }


def test_packs_are_closed_at_one_mebibyte() -> None:
    store = ArtifactStore.open(f"memory://{new_id()}")
    tensors = [(f"t{index:04}", "U8", (60_000,), 60_000) for index in range(40)]
    data = build_header(tensors, {}) + b"".join(bytes([index]) * 60_000 for index in range(40))
    stored = put_component(store, "net", {"model.safetensors": data})
    (file,) = ComponentManifest.parse(store.get(stored.manifest.digest)).files
    assert file.split is not None
    # 18 x 60,000 = 1,080,000 is the first sum of 1,048,576 or more.
    assert [pack.size for pack in file.split.packs] == [1_080_000, 1_080_000, 240_000]
    assert stored.manifest.digest == "b254d1433f9ce3cbdec78ba0e7463abff7eb4539c64c66d9bee7fd9577eb8003"


def test_a_trajectory() -> None:
    facts = TrajectoryFacts(
        seeds=(7, 2**63 - 1),
        sigmas=(1.0, 0.75, 0.1, 0.0),
        law="flow-sde",
        window=(1, 2),
        weights={"transformer": "a" * 64, "text_encoder": "b" * 64},
        prompt_embedding="c" * 64,
        law_parameters={"a": 0.7},
    )
    samples = tuple(
        TrajectorySample(
            {level: np.full((2, 3), index + level / 8, np.float32) for level in (1, 2, 3)},
            np.array([-0.5 - index], np.float32),
        )
        for index in range(2)
    )
    encoded = codecs.encode("trajectory", TrajectoryGroup(facts, samples))
    assert sha256(encoded.data) == "bdf1205eac66aed9068f43ec85dba20f29b75288b2171b8aad34e4157d521dec"
    assert encoded.media_type == "application/vnd.mutoscope.trajectory"
    assert encoded.meta == {"samples": 2, "levels": 3, "shape": [2, 3]}
