"""Kinds of wrong memo answers that neighbouring systems are known for, each tried here.

Two more have their tests where the cause would lie: concatenated key parts in `tests/golden`, and state that
a resident model keeps from one request to the next in `tests/engine/test_engine.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mutoscope.platform import ids
from mutoscope.platform.catalog import RunRecord
from mutoscope.platform.engine import numerics
from mutoscope.platform.errors import InvalidParameter, RunFailed
from mutoscope.platform.orchestration.importing import import_folder
from mutoscope.platform.orchestration.plan import MEMO_DOMAIN, plan_run
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.orchestration.submit import submit_run
from mutoscope.platform.refs import ArtifactRef
from tests.support.fake_worker import CONTRACT, FakeWorker, paint
from tests.support.tinycard.card import CARD
from tests.support.tinycard.folder import WEIGHTS, write_folder

TINY = CARD.id


async def test_a_checkpoint_overwritten_in_place_is_another_one(
    runtime: Runtime, worker: FakeWorker, tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "folder", seed=0)
    import_folder(runtime.catalog, runtime.store, CARD, folder)
    first = await submit_run(TINY, seed=1)
    # The same name, size and time: nothing but the bytes tells.
    trained, path = write_folder(tmp_path / "trained", seed=1) / WEIGHTS, folder / WEIGHTS
    before = path.stat()
    path.write_bytes(trained.read_bytes())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    import_folder(runtime.catalog, runtime.store, CARD, folder)
    second = await submit_run(TINY, seed=1)
    assert second.disposition == "new"
    assert runtime.catalog.runs.weights(first.run.id) != runtime.catalog.runs.weights(second.run.id)
    # A file changed after its import changes no run: the store's bytes count, not the folder's.
    path.write_bytes(b"scribbled over")
    assert (await submit_run(TINY, seed=1)).disposition == "hit"


async def test_a_seed_that_is_drawn_is_drawn_anew_each_time(runtime: Runtime, worker: FakeWorker) -> None:
    first, second = await submit_run(TINY), await submit_run(TINY)
    assert (first.disposition, second.disposition) == ("new", "new")
    assert first.run.seed != second.run.seed
    again = await submit_run(TINY, seed=first.run.seed)
    assert (again.disposition, again.run.id) == ("hit", first.run.id), "and what was drawn can be asked for"


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, float("nan"), float("inf"), np.float32(1.5), np.zeros(2), lambda: 3, b"\xff"]
)
async def test_what_has_no_place_in_a_key_is_refused(
    runtime: Runtime, worker: FakeWorker, value: object
) -> None:
    for name in ("num_inference_steps", "gate", "undeclared"):
        with pytest.raises(InvalidParameter, match=f"^{name}="):
            await submit_run(TINY, seed=1, **{name: value})
    assert runtime.catalog.runs.list(kind="engine") == [], "nothing ran under a key without it"


async def test_the_order_in_which_things_are_named_does_not_matter(
    runtime: Runtime, worker: FakeWorker
) -> None:
    first = await submit_run(TINY, seed=1, num_inference_steps=2, gate_step=1)
    second = await submit_run(TINY, gate_step=1, num_inference_steps=2, seed=1)
    assert (second.disposition, second.run.id) == ("hit", first.run.id)


async def test_changed_code_is_not_answered_by_old_code(
    runtime: Runtime, worker: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await submit_run(TINY, seed=1)
    monkeypatch.setattr(numerics, "card_digest", lambda card: ids.sha256(b"an edited formula"))
    runtime.catalog.workers.mark_stopped(worker.id)
    with FakeWorker(runtime, (TINY,)).serving():
        second = await submit_run(TINY, seed=1)
    assert (second.disposition, second.run.id == first.run.id) == ("new", False)


async def test_another_release_of_a_library_is_another_key(runtime: Runtime, worker: FakeWorker) -> None:
    await submit_run(TINY, seed=1)
    runtime.catalog.workers.mark_stopped(worker.id)
    with FakeWorker(runtime, (TINY,), contract={**CONTRACT, "versions": {"torch": "3.0"}}).serving():
        assert (await submit_run(TINY, seed=1)).disposition == "new"


async def test_a_failure_is_no_result(runtime: Runtime) -> None:
    def fails_once(runtime: Runtime, run: RunRecord) -> dict[str, ArtifactRef]:
        if not runtime.catalog.runs.list(state="failed"):
            raise RuntimeError("out of memory")
        return paint(runtime, run)

    with FakeWorker(runtime, (TINY,), perform=fails_once).serving():
        with pytest.raises(RunFailed, match="out of memory"):
            await submit_run(TINY, seed=1)
        second = await submit_run(TINY, seed=1)
    assert second.disposition == "new"
    assert set(second.outputs) == {slot.name for slot in CARD.outputs}


async def test_an_output_that_was_cut_short_is_no_hit(runtime: Runtime, worker: FakeWorker) -> None:
    first = await submit_run(TINY, seed=1)
    ref = first.outputs["image"]
    path = runtime.store.local_path(ref.digest)
    assert path is not None
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1])
    second = await submit_run(TINY, seed=1)
    assert (second.disposition, second.outputs) == ("new", first.outputs)
    assert len(runtime.store.get(ref.digest)) == ref.size, "and the recompute has repaired it"


def test_every_field_of_the_key_counts(runtime: Runtime) -> None:
    image = runtime.store.put(b"picture", kind="image", media_type="image/png")
    parts = plan_run(runtime, TINY, {"image": image}, seed=1).key_parts
    assert parts is not None
    keys = {ids.digest(MEMO_DOMAIN, parts)}
    changed = list(one_leaf_changed(parts))
    assert len(changed) > 12
    keys |= {ids.digest(MEMO_DOMAIN, other) for other in changed}
    assert len(keys) == len(changed) + 1


def one_leaf_changed(parts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The parts again and again, each time with another leaf changed, and each leaf once left out."""
    found: list[dict[str, Any]] = []
    for name, value in parts.items():
        if isinstance(value, Mapping) and value:
            found += [{**parts, name: inner} for inner in one_leaf_changed(value)]
            continue
        found.append({**parts, name: "something else"})
        found.append({key: kept for key, kept in parts.items() if key != name})
    return found
