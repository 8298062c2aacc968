"""Collecting checkpoints that share tensors: what a kept version needs stays, the rest goes."""

from __future__ import annotations

import numpy as np
import pytest

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.artifacts.components import StoredComponent, put_component
from mutoscope.platform.artifacts.manifest import ComponentManifest, iter_members
from mutoscope.platform.artifacts.tensors import open_tensors
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.refs import ArtifactRef
from tests.support.collecting import DAY, Holdings
from tests.support.safetensors import checkpoint, saved

ZEROS, ONES = np.zeros((256, 256), np.float32), np.ones((256, 256), np.float32)


@pytest.fixture
def held(any_catalog: Catalog, store: ArtifactStore) -> Holdings:
    """Weights and their parts may go after a day, unless something keeps them."""
    any_catalog.retention.add("weights", DAY, kind="weights")
    any_catalog.retention.add("parts", DAY, kind="blob")
    return Holdings(any_catalog, store)


def make(held: Holdings, arrays: dict[str, np.ndarray], base: str | None = None) -> StoredComponent:
    """A checkpoint that a training made two days ago."""
    stored = put_component(held.store, "net", {"model.safetensors": saved(arrays)}, base=base)
    held.catalog.runs.record_completed(
        "train", generated={"net": stored.manifest}, members={stored.manifest.digest: stored.members}
    )
    for ref in (stored.manifest, *stored.members.values()):
        if isinstance(ref, ArtifactRef):
            held.age(ref, 2 * DAY)
    return stored


def digests(stored: StoredComponent) -> set[str]:
    members = {ref if isinstance(ref, str) else ref.digest for ref in stored.members.values()}
    return members | {stored.manifest.digest}


def test_a_kept_version_keeps_what_it_shares_with_one_that_goes(held: Holdings) -> None:
    old = make(held, checkpoint(1, **{"blocks.2.weight": ZEROS}))
    new = make(held, checkpoint(1, **{"blocks.2.weight": ONES}))
    held.catalog.weights.publish("flux-t2i", "net", new.manifest.digest)
    record = held.collect(grace=0.0)
    assert record.counts["collected"] == 2, "the old manifest, and the one tensor that only it had"
    assert record.counts["collected_bytes"] == ZEROS.nbytes + old.manifest.size
    assert set(held.store.digests()) == digests(new)
    assert np.array_equal(
        open_tensors(held.store, manifest_of(held, new))["blocks.3.weight"], checkpoint(1)["blocks.3.weight"]
    )


def manifest_of(held: Holdings, stored: StoredComponent) -> ComponentManifest:
    return ComponentManifest.parse(held.store.get(stored.manifest.digest))


def test_an_adapter_keeps_its_base(held: Holdings) -> None:
    base = make(held, checkpoint(1))
    adapter = make(held, {"blocks.0.lora_A.weight": ONES}, base=base.manifest.digest)
    held.catalog.weights.publish("flux-t2i", "net", adapter.manifest.digest)
    assert held.collect(grace=0.0).counts["collected"] == 0
    tensors = open_tensors(held.store, manifest_of(held, adapter))
    assert set(tensors) == {*checkpoint(1), "blocks.0.lora_A.weight"}
    assert all(held.store.contains(member.digest) for member in iter_members(manifest_of(held, base)))


def test_without_its_adapter_the_base_goes_too(held: Holdings) -> None:
    base = make(held, checkpoint(1))
    adapter = make(held, {"blocks.0.lora_A.weight": ONES}, base=base.manifest.digest)
    held.collect(grace=0.0)
    assert set(held.store.digests()) == set()
    rows = digests(base) | digests(adapter)
    assert {held.catalog.artifacts.state(digest) for digest in rows} == {"tombstone"}


def test_storing_a_checkpoint_again_brings_back_what_was_collected(held: Holdings) -> None:
    first = make(held, checkpoint(1))
    held.collect(grace=DAY)
    assert set(held.store.digests()) == set()
    again = put_component(held.store, "net", {"model.safetensors": saved(checkpoint(1))})
    assert again.manifest == first.manifest
    held.catalog.runs.record_completed(
        "train", generated={"net": again.manifest}, members={again.manifest.digest: again.members}
    )
    assert {held.catalog.artifacts.state(digest) for digest in digests(again)} == {"present"}
    held.collect(grace=0.0)
    assert set(held.store.digests()) == digests(again)
