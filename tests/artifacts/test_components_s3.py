"""Checkpoints and trajectories on a real S3 server: what each costs in requests, seen on the wire."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from mutoscope.platform.artifacts import ArtifactStore, codecs
from mutoscope.platform.artifacts.assembly import write_file
from mutoscope.platform.artifacts.components import put_component
from mutoscope.platform.artifacts.manifest import ComponentManifest, iter_members
from mutoscope.platform.artifacts.tensors import open_tensors
from mutoscope.platform.artifacts.trajectories import open_trajectory
from mutoscope.platform.ids import new_id
from mutoscope.platform.trajectory import TrajectoryFacts, TrajectoryGroup, TrajectorySample
from tests.support.buckets import Bucket
from tests.support.proxy import Proxy
from tests.support.safetensors import checkpoint, saved
from tests.support.servers import S3Server

MODEL = "model.safetensors"


class Wire:
    """A store in the bucket, and what goes over the wire to it."""

    def __init__(self, store: ArtifactStore, proxy: Proxy) -> None:
        self.store, self._proxy = store, proxy

    def seen(self) -> list[tuple[str, str]]:
        """(method, object) of each request since the last call."""
        requests = self._proxy.requests
        self._proxy.forget()
        return [(one.method, one.target.partition("?")[0].rpartition("/")[2]) for one in requests]

    def put(self, data: bytes) -> ComponentManifest:
        stored = put_component(self.store, "net", {MODEL: data, "config.json": b"{}"})
        return ComponentManifest.parse(self.store.get(stored.manifest.digest))


@pytest.fixture
def wire(s3_server: S3Server, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    with Proxy(s3_server.endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        store = ArtifactStore.open(f"s3://{bucket.name}/{new_id()}")
        store.put(b"first", kind="blob", media_type="text/plain")  # what is asked about the bucket is over
        wire = Wire(store, proxy)
        wire.seen()
        yield wire


def test_a_checkpoint_takes_two_requests_an_object_and_one_when_it_is_there(wire: Wire) -> None:
    manifest = wire.put(saved(checkpoint(1)))
    objects = 1 + sum(1 for _ in iter_members(manifest))
    assert objects == 1 + 1 + 1 + 1 + 4, "manifest, config, header, pack of twenty, four large tensors"
    methods = Counter(method for method, _ in wire.seen())
    assert methods == {"HEAD": objects, "PUT": objects, "GET": 1}
    wire.put(saved(checkpoint(1)))
    methods = Counter(method for method, _ in wire.seen())
    assert methods == {"HEAD": objects, "GET": 1}, "the GET is the test's own, of the manifest"


def test_only_what_changed_is_sent(wire: Wire) -> None:
    wire.put(saved(checkpoint(1)))
    wire.seen()
    wire.put(saved(checkpoint(1, **{"blocks.2.weight": np.zeros((256, 256), np.float32)})))
    assert Counter(method for method, _ in wire.seen())["PUT"] == 2, "the tensor and the manifest"


@pytest.mark.parametrize("name", ["blocks.2.weight", "blocks.7.bias"], ids=["own object", "packed"])
def test_one_tensor_of_many_is_one_request(wire: Wire, name: str) -> None:
    manifest = wire.put(saved(checkpoint(1)))
    wire.seen()
    assert np.array_equal(open_tensors(wire.store, manifest)[name], checkpoint(1)[name])
    (split,) = (file.split for file in manifest.files if file.split is not None)
    (tensor,) = (one for one in split.tensors if one.name == name)
    digest = tensor.digest if tensor.pack is None else split.packs[tensor.pack].digest
    assert wire.seen() == [("GET", digest)]


def test_a_file_is_put_together_with_one_request_an_object(wire: Wire, tmp_path: Path) -> None:
    manifest = wire.put(saved(checkpoint(1)))
    wire.seen()
    (file,) = (file for file in manifest.files if file.split is not None)
    write_file(wire.store, file, tmp_path / MODEL)
    assert (tmp_path / MODEL).read_bytes() == saved(checkpoint(1))
    objects = [m.digest for m in iter_members(manifest) if m.path.startswith(MODEL)]
    assert Counter(wire.seen()) == Counter(("GET", digest) for digest in objects)


def test_a_step_of_a_trajectory_is_one_request(wire: Wire) -> None:
    facts = TrajectoryFacts(
        (7, 8), (1.0, 0.5, 0.0), "flow-sde", (0, 1), {"transformer": "a" * 64}, "c" * 64, {"a": 0.7}
    )
    latents = np.random.default_rng(0).standard_normal((2, 2, 16, 64, 64)).astype(np.float32)
    samples = tuple(
        TrajectorySample({0: latents[i, 0], 1: latents[i, 1]}, np.zeros(1, np.float32)) for i in range(2)
    )
    encoded = codecs.encode("trajectory", TrajectoryGroup(facts, samples))
    ref = wire.store.put(encoded.data, kind="trajectory", media_type=encoded.media_type)
    wire.seen()
    opened = open_trajectory(wire.store, ref.digest)
    assert Counter(wire.seen()) == {("GET", ref.digest): 1, ("HEAD", ref.digest): 1}
    assert np.array_equal(opened.latent(1, 0), latents[1, 0])
    assert wire.seen() == [("GET", ref.digest)]
