"""What a worker records of a training: components whose versions share what they have in common."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mutoscope.platform import faults
from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.artifacts.components import put_component
from mutoscope.platform.artifacts.manifest import ComponentManifest, iter_members
from mutoscope.platform.catalog import Catalog, RunRecord
from mutoscope.platform.engine.request import Output, Progress, Request, Result
from mutoscope.workers.executor import Executor
from mutoscope.workers.tensors import open_tensors
from tests.support.records import a_spec, claim, queue
from tests.support.safetensors import checkpoint, saved

RECIPE = Output("json", {"height": 64}, {"component": "recipe"})


def trained(run: RunRecord, seed: int, **changed: np.ndarray) -> Result:
    """What a trainer hands back: one component from `seed`, with some tensors `changed`, and one that every
    training leaves as it was."""
    net = {"config.json": b"{}", "model.safetensors": saved(checkpoint(seed, **changed))}
    vae = {"model.safetensors": saved(checkpoint(99))}
    return Result(
        run.id, {"net": Output("weights", net), "vae": Output("weights", vae), "recipe": RECIPE}, {}
    )


def deliver(catalog: Catalog, store: ArtifactStore, key: str, **changed: np.ndarray) -> RunRecord:
    queue(catalog, key)
    run = claim(catalog)
    Executor(catalog, store, "worker-a").deliver(run, trained(run, 1, **changed), {})
    return run


def request_of(catalog: Catalog, store: ArtifactStore) -> Request:
    """Of the one run there is to claim."""
    run = claim(catalog)
    return Executor(catalog, store, "worker-a").request(run, catalog.runs.used(run.id).inputs)


def test_outputs_are_the_components_and_their_members_are_recorded(
    catalog: Catalog, store: ArtifactStore
) -> None:
    run = deliver(catalog, store, "first")
    outputs = catalog.runs.outputs(run.id)
    assert {role: ref.kind for role, ref in outputs.items()} == {
        "net": "weights",
        "vae": "weights",
        "recipe": "json",
    }
    for name in ("net", "vae"):
        digest = outputs[name].digest
        listed = iter_members(ComponentManifest.parse(store.get(digest)))
        assert catalog.audit.members(digest) == {member.path: member.digest for member in listed}
    recorded = {ref.digest for ref in catalog.artifacts.list(limit=1000)}
    recorded |= {
        member for name in ("net", "vae") for member in catalog.audit.members(outputs[name].digest).values()
    }
    assert recorded == set(store.digests())


def test_a_checkpoint_that_differs_in_one_tensor_stores_that_tensor(
    catalog: Catalog, store: ArtifactStore
) -> None:
    deliver(catalog, store, "first")
    before = set(store.digests())
    deliver(catalog, store, "second", **{"blocks.3.weight": np.zeros((256, 256), np.float32)})
    sizes = sorted(store.size(digest) for digest in set(store.digests()) - before)
    assert sizes[-1] == 256 * 256 * 4
    assert len(sizes) == 2, "the tensor and the component's manifest; the vae is the first one's"


def test_a_training_whose_tensor_is_lost_is_no_hit(catalog: Catalog, store: ArtifactStore) -> None:
    run = deliver(catalog, store, "first")
    spec = a_spec("first")
    assert catalog.runs.enqueue(spec, present=store.contains).disposition == "hit"
    members = catalog.audit.members(catalog.runs.outputs(run.id)["vae"].digest)
    path = store.local_path(members["model.safetensors/tensors/blocks.0.weight"])
    assert path is not None
    path.unlink()
    assert catalog.runs.enqueue(spec, present=store.contains).disposition == "new"


def test_bytes_without_rows_are_found_and_named_by_the_next_attempt(
    catalog: Catalog, store: ArtifactStore
) -> None:
    queue(catalog)
    run = claim(catalog)
    executor = Executor(catalog, store, "worker-a")
    with faults.armed("worker.after_put:raise"), pytest.raises(faults.InjectedError):
        executor.deliver(run, trained(run, 1), {})
    assert catalog.runs.outputs(run.id) == {}
    before = set(store.digests())
    executor.deliver(run, trained(run, 1), {})
    assert set(store.digests()) == before
    assert set(catalog.runs.outputs(run.id)) == {"net", "vae", "recipe"}


def test_what_a_result_has_to_say_goes_into_the_run(catalog: Catalog, store: ArtifactStore) -> None:
    queue(catalog)
    run = claim(catalog)
    result = Result(run.id, {"recipe": RECIPE}, {}, warnings=("prompt: the last 16 tokens were cut",))
    Executor(catalog, store, "worker-a").deliver(run, result, {})
    assert catalog.runs.get(run.id).warnings == ["prompt: the last 16 tokens were cut"]


def test_where_it_was_at_its_end_is_noted_with_its_outputs(catalog: Catalog, store: ArtifactStore) -> None:
    queue(catalog)
    run = claim(catalog)
    at = Progress(run.id, "decode", 7, 7)
    Executor(catalog, store, "worker-a").deliver(run, Result(run.id, {"recipe": RECIPE}, {}), {}, at)
    found = catalog.runs.get(run.id)
    assert (found.state, found.stage, found.step, found.total) == ("succeeded", "decode", 7, 7)


@pytest.mark.parametrize(
    ("priority", "share"), [(0, 1.0), (1, 2.0), (-1, 0.5), (10**6, 1024.0), (-(10**6), 1 / 1024)]
)
def test_runs_of_a_workflow_are_a_group_and_their_place_in_the_queue_is_a_share(
    catalog: Catalog, store: ArtifactStore, priority: int, share: float
) -> None:
    workflow = catalog.workflows.start("test.make", {})
    queue(catalog, workflow_run_id=workflow, priority=priority)
    request = request_of(catalog, store)
    assert (request.group, request.priority) == (workflow, share)


def test_a_run_by_itself_is_a_group_of_its_own(catalog: Catalog, store: ArtifactStore) -> None:
    queue(catalog)
    assert request_of(catalog, store).group == ""


def test_weights_are_opened_for_a_request(catalog: Catalog, store: ArtifactStore) -> None:
    """Tensors as torch has them, each when it is asked for, and the small files beside them."""
    weights = checkpoint(1)
    files = {"config.json": b'{"a": 1}', "model.safetensors": saved(weights)}
    base = put_component(store, "net", files)
    adapter = put_component(
        store, "net", {"lora.safetensors": saved({"x": np.ones(2, np.float32)})}, base=base.manifest.digest
    )
    for stored in (base, adapter):
        catalog.artifacts.record(stored.manifest)
    catalog.runs.enqueue(
        a_spec("go on", inputs={"state": base.manifest, "reference": adapter.manifest}),
        present=store.contains,
    )
    inputs = request_of(catalog, store).inputs
    given = inputs["state"]
    assert (given.digest, given.component, given.base) == (base.manifest.digest, "net", None)
    assert given.files == {"config.json": b'{"a": 1}'}
    assert set(given.tensors) == set(weights)
    name = next(iter(weights))
    assert np.array_equal(given.tensors[name].numpy(), weights[name])
    assert inputs["reference"].base == base.manifest.digest
    assert set(inputs["reference"].tensors) == {*weights, "x"}


def test_a_training_step_leaves_a_component_like_the_one_it_began_with(
    catalog: Catalog, store: ArtifactStore
) -> None:
    """The slot is not the component: manifests say of what weights are, and what an adapter is over."""
    weights = checkpoint(1)
    base = put_component(store, "net", {"config.json": b"{}", "model.safetensors": saved(weights)})
    catalog.runs.record_completed(
        "import",
        generated={"weights:net": base.manifest},
        members={base.manifest.digest: base.members},
    )
    name = next(iter(weights))
    changed = {name: torch.from_numpy(weights[name]) + 1}
    like = {"component": "net", "like": base.manifest.digest}
    queue(catalog, "step")
    run = claim(catalog)
    outputs = {
        "weights": Output("weights", changed, like),
        "ema": Output("weights", {}, like),
        "state": Output("weights", {"state.json": b"{}"}, {"component": "training-state"}),
        "adapter": Output(
            "weights",
            {"lora.safetensors": saved({"x": np.ones(2, np.float32)})},
            {"component": "net", "base": base.manifest.digest},
        ),
    }
    made = Executor(catalog, store, "worker-a").deliver(run, Result(run.id, outputs, {}), {})
    manifests = {slot: ComponentManifest.parse(store.get(ref.digest)) for slot, ref in made.items()}
    assert {slot: each.component for slot, each in manifests.items()} == {
        "weights": "net",
        "ema": "net",
        "state": "training-state",
        "adapter": "net",
    }
    assert made["ema"].digest == base.manifest.digest, "nothing changed: the same component"
    assert manifests["adapter"].base == base.manifest.digest
    tensors = open_tensors(store, manifests["weights"])
    assert torch.equal(tensors[name], changed[name])
    listed = iter_members(manifests["weights"])
    assert catalog.audit.members(made["weights"].digest) == {m.path: m.digest for m in listed}
