"""Bulk recording: idempotent, checked, and what it records is what the everyday calls would have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from mutoscope.platform.catalog import ArtifactRow, Catalog, Edge, Member, RunRecord
from mutoscope.platform.catalog.bulk import BATCH
from mutoscope.platform.errors import CatalogError, InvalidParameter, UnknownReference
from mutoscope.platform.refs import ArtifactRef
from tests.support import big
from tests.support.records import a_spec, an_artifact, make, present

IMAGE, PART = an_artifact("image", meta={"height": 64}), an_artifact("part", "blob")
SMALL = big.Shape(steps=2, prompts=3, samples=2)


def bring(
    catalog: Catalog,
    artifacts: Sequence[ArtifactRef] = (),
    runs: Sequence[RunRecord] = (),
    edges: Sequence[Edge] = (),
    members: Sequence[Member] = (),
) -> tuple[int, int, int, int]:
    """Record all of it in one block; how many of each were new."""
    with catalog.bulk() as bulk:
        return (
            bulk.artifacts(ArtifactRow(ref, 5.0) for ref in artifacts),
            bulk.runs(runs),
            bulk.edges(edges),
            bulk.members(members),
        )


def test_a_history_reads_like_one_made_here(catalog: Catalog) -> None:
    told = big.history(catalog, SMALL)
    # A step: 3 prompts, 6 samples of 4 artifacts, 2 runs and 12 edges; a train run with 2 edges and an
    # artifact. Two imports with 3 + 1 artifacts before.
    assert (told.artifacts, told.runs, told.edges) == (2 * (3 + 24 + 1) + 4, 2 * 13 + 2, 2 * (72 + 2) + 4)
    top = catalog.weights.get("flux-t2i/transformer@live")
    assert (top.ordinal, top.digest) == (3, told.versions[-1])
    graph = catalog.lineage.up(told.versions[-1])
    assert {run.kind for run in graph.runs.values()} == {"import", "engine", "reward", "train"}
    assert len(graph.runs) == told.runs
    (use,) = [use for use in catalog.lineage.weights_of(told.images[-1], 1) if use.component == "transformer"]
    assert use.digest == told.versions[1]
    hits = catalog.runs.list(memo_key=told.memo_keys[0])
    assert [run.parameters for run in hits] == [{"num_inference_steps": 10, "guidance_scale": 3.5}]


def test_recording_twice_changes_nothing(catalog: Catalog) -> None:
    run = big.a_run("engine", big.START)
    edges = [Edge(run.id, "generated", "image", 0, IMAGE.digest)]
    assert bring(catalog, [IMAGE], [run], edges) == (1, 1, 1, 0)
    assert bring(catalog, [IMAGE], [run], edges) == (0, 0, 0, 0)
    assert catalog.runs.get(run.id) == run
    assert catalog.runs.outputs(run.id) == {"image": IMAGE}


def test_more_rows_than_a_batch(catalog: Catalog) -> None:
    refs = [an_artifact(f"a{n}") for n in range(BATCH + 1)]
    with catalog.bulk() as bulk:
        assert bulk.artifacts(ArtifactRow(ref) for ref in refs) == BATCH + 1
    assert catalog.artifacts.get(refs[-1].digest) == refs[-1]


def test_a_tombstone_comes_back_to_life_and_never_the_other_way(catalog: Catalog) -> None:
    for present_, state in ((False, "tombstone"), (True, "present"), (False, "present")):
        with catalog.bulk() as bulk:
            bulk.artifacts([ArtifactRow(IMAGE, present=present_)])
        assert catalog.artifacts.state(IMAGE.digest) == state


def test_what_comes_back_to_life_counts_as_made_now(catalog: Catalog) -> None:
    def created_at() -> float:
        return catalog.calendar.artifacts([IMAGE.digest])[IMAGE.digest].created_at

    with catalog.bulk() as bulk:
        bulk.artifacts([ArtifactRow(IMAGE, 5.0, present=False)])
    assert created_at() == 5.0
    before = catalog.reachability.now()
    bring(catalog, [IMAGE])
    revived = created_at()
    assert before - 0.01 <= revived <= catalog.reachability.now() + 0.01
    bring(catalog, [IMAGE])
    assert created_at() == revived, "what is there already stays as it is"


def test_members_lead_to_artifacts(catalog: Catalog) -> None:
    member = Member(IMAGE.digest, "transformer/model.safetensors", PART.digest)
    with pytest.raises(UnknownReference, match=r"members\.artifact_digest=.* record that first"):
        bring(catalog, [IMAGE], members=[member])
    assert catalog.artifacts.get(IMAGE.digest) is None, "all or nothing"
    assert bring(catalog, [IMAGE, PART], members=[member]) == (2, 0, 0, 1)
    assert bring(catalog, members=[member]) == (0, 0, 0, 0)


@pytest.mark.parametrize("missing", ["run", "artifact"])
def test_an_edge_to_nowhere_is_named(catalog: Catalog, missing: str) -> None:
    run = big.a_run("engine", big.START)
    edge = Edge(run.id, "used", "image", 0, IMAGE.digest)
    refs, runs = ([], [run]) if missing == "artifact" else ([IMAGE], [])
    with pytest.raises(UnknownReference, match=rf"edges\.{missing}_\w+=.* leads to no row of {missing}s"):
        bring(catalog, refs, runs, [edge])
    assert catalog.runs.list() == []


def test_a_history_that_contradicts_ours_is_refused(catalog: Catalog) -> None:
    ours = make(catalog, "key", {"image": IMAGE})
    with pytest.raises(CatalogError, match="contradicts this one"):
        bring(catalog, [PART], edges=[Edge(ours.id, "generated", "image", 0, PART.digest)])
    with pytest.raises(CatalogError, match=f"'kind': 'engine'.*{ours.id}.*'kind': 'train'"):
        bring(catalog, runs=[replace(ours, kind="train")])
    assert catalog.runs.outputs(ours.id) == {"image": IMAGE}


@pytest.mark.parametrize("state", ["queued", "running"])
def test_a_run_under_way_is_not_brought_in(catalog: Catalog, state: str) -> None:
    unfinished: RunRecord = replace(big.a_run("engine", big.START), state=state)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="has not ended"):
        bring(catalog, runs=[unfinished])


def test_what_was_brought_in_answers_the_memo(catalog: Catalog) -> None:
    spec = a_spec("key")
    run = big.a_run("engine", big.START, memo_key=spec.memo_key)
    bring(catalog, [IMAGE], [run], [Edge(run.id, "generated", "image", 0, IMAGE.digest)])
    answer = catalog.runs.enqueue(spec, present=present)
    assert (answer.disposition, answer.run) == ("hit", run)


def test_workflow_runs_come_along(catalog: Catalog) -> None:
    child = catalog.workflows.get(catalog.workflows.start("text_to_image", {"seed": 7}))
    moved = replace(child, id=big.a_run("x", 0.0).id)
    with catalog.bulk() as bulk:
        assert bulk.workflow_runs([child, moved]) == 1
    assert catalog.workflows.get(moved.id) == moved


def test_deep_and_wide(catalog: Catalog) -> None:
    links = big.chain(catalog, 50)
    assert len(catalog.lineage.up(links[-1]).runs) == 50
    root, tip = big.fan(catalog, 40)
    assert len(catalog.lineage.down(root).artifacts) == len(catalog.lineage.up(tip).artifacts) == 42
