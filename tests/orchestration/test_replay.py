"""Replays: from the record alone, never from the memo."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from mutoscope.platform.artifacts import codecs
from mutoscope.platform.catalog import RunRecord
from mutoscope.platform.errors import InvalidInput, UnknownReference
from mutoscope.platform.orchestration.replay import replay_run
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.orchestration.submit import submit_run
from mutoscope.platform.refs import ArtifactRef
from tests.orchestration.conftest import RECIPE
from tests.support.fake_worker import FakeWorker, publish_weights
from tests.support.tinycard.card import CARD


async def test_a_replay_computes_again_and_compares(runtime: Runtime, worker: FakeWorker) -> None:
    original = await submit_run("tiny-test", seed=1)
    seen: list[RunRecord] = []
    replayed = await replay_run(original.run.id, watch=seen.append)
    assert replayed.equal
    assert not replayed.changed_code
    assert replayed.run.id != original.run.id
    assert replayed.run.memo_key == original.run.memo_key
    assert worker.done == [original.run.id, replayed.run.id]
    assert seen[-1].state == "succeeded"
    assert runtime.catalog.incidents.list() == []


async def test_a_replay_uses_the_recorded_weights_not_the_live_ones(
    runtime: Runtime, worker: FakeWorker
) -> None:
    original = await submit_run("tiny-test", seed=1)
    before = runtime.catalog.runs.weights(original.run.id)
    publish_weights(runtime, CARD, RECIPE, salt="2")
    assert runtime.catalog.weights.live("tiny-test")["net"].digest != before["net"]
    replayed = await replay_run(original.run.id)
    assert runtime.catalog.runs.weights(replayed.run.id) == before


async def test_other_bytes_are_told_and_recorded_as_an_incident(runtime: Runtime) -> None:
    counter = itertools.count()

    def unsteady(runtime: Runtime, run: RunRecord) -> dict[str, ArtifactRef]:
        encoded = codecs.encode("image", np.full((2, 2, 3), next(counter), np.uint8))
        ref = runtime.store.put(encoded.data, kind="image", media_type=encoded.media_type)
        return {"image": ref}

    with FakeWorker(runtime, ("tiny-test",), perform=unsteady).serving():
        original = await submit_run("tiny-test", seed=1)
        replayed = await replay_run(original.run.id)
        # What the key answers does not change because a replay disagreed.
        assert (await submit_run("tiny-test", seed=1)).outputs == original.outputs
    assert not replayed.equal
    assert replayed.differing == ("image",)
    (incident,) = runtime.catalog.incidents.list()
    assert (incident.run_id, incident.earlier_run_id) == (replayed.run.id, original.run.id)


async def test_only_succeeded_engine_runs_can_be_replayed(runtime: Runtime) -> None:
    done = runtime.catalog.runs.record_completed("import", generated={})
    with pytest.raises(InvalidInput, match="is a succeeded import run: replay a succeeded engine run"):
        await replay_run(done.id)
    with pytest.raises(UnknownReference):
        await replay_run("no-such-run")


async def test_a_missing_or_added_output_differs(runtime: Runtime, worker: FakeWorker) -> None:
    original = await submit_run("tiny-test", seed=1)
    replayed = await replay_run(original.run.id)
    fewer = replace(replayed, outputs={"image": replayed.outputs["image"]})
    assert fewer.differing == ("latent",)
