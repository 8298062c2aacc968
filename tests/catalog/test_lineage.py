"""Lineage: complete, exact, each node once, whatever the shape of the graph."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest
from sqlalchemy import insert, update

from mutoscope.platform.catalog import Catalog, LineageGraph, RunRecord, render_tree
from mutoscope.platform.catalog.tables import artifacts, edges, runs
from mutoscope.platform.errors import InvalidParameter, UnknownReference
from mutoscope.platform.ids import new_id
from mutoscope.platform.refs import ArtifactRef
from tests.support.records import an_artifact

PROMPTED, IMAGE, VIDEO = an_artifact("prompted"), an_artifact("image"), an_artifact("video", "video")
NET, VAE = an_artifact("net", "weights"), an_artifact("vae", "weights")


def record(
    catalog: Catalog,
    used: Mapping[str, ArtifactRef],
    generated: Mapping[str, ArtifactRef],
    kind: str = "engine",
    card: str | None = "toy-card",
) -> RunRecord:
    return catalog.runs.record_completed(kind, card=card, used=used, generated=generated)


@pytest.fixture
def story(catalog: Catalog) -> dict[str, RunRecord]:
    """Imported weights make an image, the image a video; the net is shared by both steps."""
    imported = record(catalog, {}, {"weights:net": NET, "weights:vae": VAE}, kind="import", card="flux-t2i")
    catalog.weights.publish("flux-t2i", "net", NET.digest, imported.id)
    catalog.weights.publish("flux-t2i", "vae", VAE.digest, imported.id)
    painted = record(
        catalog,
        {"weights:net": NET, "weights:vae": VAE},
        {"image": IMAGE, "latent": an_artifact("latent", "latent")},
        card="flux-t2i",
    )
    filmed = record(catalog, {"image": IMAGE, "weights:net": NET}, {"video": VIDEO}, card="wan-i2v")
    record(catalog, {"in": an_artifact("unrelated")}, {"out": an_artifact("too")})
    return {"imported": imported, "painted": painted, "filmed": filmed}


def test_up_is_everything_it_came_from_and_nothing_else(
    catalog: Catalog, story: dict[str, RunRecord]
) -> None:
    graph = catalog.lineage.up(VIDEO.digest)
    # The latent that came with the image is no ancestor of the video.
    assert {node.ref for node in graph.artifacts.values()} == {VIDEO, IMAGE, NET, VAE}
    assert graph.runs == {run.id: run for run in story.values()}
    found = {(edge.run_id, edge.direction, edge.role, edge.digest) for edge in graph.edges}
    imported, painted, filmed = (story[name].id for name in ("imported", "painted", "filmed"))
    assert found == {
        (imported, "generated", "weights:net", NET.digest),
        (imported, "generated", "weights:vae", VAE.digest),
        (painted, "used", "weights:net", NET.digest),
        (painted, "used", "weights:vae", VAE.digest),
        (painted, "generated", "image", IMAGE.digest),
        (filmed, "used", "image", IMAGE.digest),
        (filmed, "used", "weights:net", NET.digest),
        (filmed, "generated", "video", VIDEO.digest),
    }
    assert len(graph.edges) == len(found)


def test_down_is_everything_made_from_it(catalog: Catalog, story: dict[str, RunRecord]) -> None:
    graph = catalog.lineage.down(VAE.digest)
    assert {node.ref.kind for node in graph.artifacts.values()} == {"weights", "image", "latent", "video"}
    assert NET.digest not in graph.artifacts
    assert set(graph.runs) == {story["painted"].id, story["filmed"].id}
    assert catalog.lineage.down(VIDEO.digest).runs == {}


@pytest.mark.parametrize(
    ("depth", "names"),
    [(1, {"filmed"}), (2, {"filmed", "painted", "imported"}), (3, {"filmed", "painted", "imported"})],
)
def test_depth_counts_generations_of_runs(
    catalog: Catalog, story: dict[str, RunRecord], depth: int, names: set[str]
) -> None:
    # The import is two generations away: it made the net that the video's own run used.
    graph = catalog.lineage.up(VIDEO.digest, depth)
    assert set(graph.runs) == {story[name].id for name in names}
    ends = {edge.digest for edge in graph.edges} | {VIDEO.digest}
    assert set(graph.artifacts) == ends
    assert {edge.run_id for edge in graph.edges} == set(graph.runs)


def test_the_whole_depth_is_the_whole_graph(catalog: Catalog, story: dict[str, RunRecord]) -> None:
    assert catalog.lineage.up(VIDEO.digest, 9) == catalog.lineage.up(VIDEO.digest)
    assert catalog.lineage.down(NET.digest, 9) == catalog.lineage.down(NET.digest)


def test_the_weights_behind_an_artifact(catalog: Catalog, story: dict[str, RunRecord]) -> None:
    uses = catalog.lineage.weights_of(VIDEO.digest)
    assert [(use.card, use.component, [str(version) for version in use.versions]) for use in uses] == [
        ("wan-i2v", "net", ["flux-t2i/net@1"]),
        ("flux-t2i", "net", ["flux-t2i/net@1"]),
        ("flux-t2i", "vae", ["flux-t2i/vae@1"]),
    ]
    assert [use.component for use in catalog.lineage.weights_of(VIDEO.digest, depth=1)] == ["net"]
    assert catalog.lineage.weights_of(NET.digest) == []


def test_lineage_answers_after_the_bytes_are_gone(catalog: Catalog, story: dict[str, RunRecord]) -> None:
    with catalog._database.write() as connection:
        connection.execute(
            update(artifacts).where(artifacts.c.digest == IMAGE.digest).values(state="tombstone")
        )
    graph = catalog.lineage.up(VIDEO.digest)
    assert not graph.artifacts[IMAGE.digest].present
    assert "image:" + IMAGE.digest[:12] + "  (bytes collected)" in render_tree(graph)
    assert len(graph.runs) == 3


def test_strangers_and_nonsense(catalog: Catalog, story: dict[str, RunRecord]) -> None:
    for walk in (catalog.lineage.up, catalog.lineage.down):
        with pytest.raises(UnknownReference, match="mutoscope ls"):
            walk("0" * 64)
        with pytest.raises(InvalidParameter, match="depth"):
            walk(VIDEO.digest, 0)


def test_an_artifact_nobody_made_is_its_own_lineage(catalog: Catalog) -> None:
    catalog.artifacts.record(IMAGE)
    graph = catalog.lineage.up(IMAGE.digest)
    assert (set(graph.artifacts), graph.runs, graph.edges) == ({IMAGE.digest}, {}, ())


def test_a_run_that_hands_its_input_through_ends_the_walk(catalog: Catalog) -> None:
    one = record(catalog, {"in": IMAGE}, {"out": IMAGE})
    other = record(catalog, {"in": IMAGE}, {"out": VIDEO})
    back = record(catalog, {"in": VIDEO}, {"out": IMAGE})
    for walk in (catalog.lineage.up, catalog.lineage.down):
        for depth in (None, 5):
            graph = walk(IMAGE.digest, depth)
            assert set(graph.runs) == {one.id, other.id, back.id}
            assert len(graph.edges) == 6
            assert render_tree(graph).count("(see above)") >= 2


Rows = list[dict[str, object]]


def insert_graph(catalog: Catalog, steps: list[tuple[list[str], list[str]]]) -> None:
    """Insert runs given as (used names, generated names), quickly."""
    names = dict.fromkeys(name for used, made in steps for name in (*used, *made))
    refs = {name: an_artifact(name, "blob") for name in names}
    run_rows: Rows = []
    edge_rows: Rows = []
    for used, made in steps:
        run_id = new_id()
        run_rows.append(
            {"id": run_id, "kind": "step", "parameters": {}, "state": "succeeded", "created_at": 0.0}
        )
        for direction, ends in (("used", used), ("generated", made)):
            for position, name in enumerate(ends):
                edge_rows.append(
                    {
                        "run_id": run_id,
                        "direction": direction,
                        "role": "item",
                        "ordinal": position,
                        "artifact_digest": refs[name].digest,
                    }
                )
    with catalog._database.write() as connection:
        connection.execute(
            insert(artifacts).values(state="present", created_at=0.0, meta={}),
            [
                {"digest": ref.digest, "kind": ref.kind, "media_type": ref.media_type, "size": ref.size}
                for ref in refs.values()
            ],
        )
        connection.execute(insert(runs), run_rows)
        connection.execute(insert(edges), edge_rows)


def shape(graph: LineageGraph) -> tuple[int, int, int]:
    return len(graph.artifacts), len(graph.runs), len(graph.edges)


def test_a_chain_of_two_thousand(catalog: Catalog) -> None:
    insert_graph(catalog, [([f"v{n}"], [f"v{n + 1}"]) for n in range(2000)])
    up = catalog.lineage.up(an_artifact("v2000").digest)
    assert shape(up) == (2001, 2000, 4000)
    assert shape(catalog.lineage.down(an_artifact("v0").digest)) == (2001, 2000, 4000)
    assert shape(catalog.lineage.up(an_artifact("v2000").digest, depth=100)) == (101, 100, 200)
    lines = render_tree(up).split("\n")
    # One line a node, each two branches deeper than its grandparent: beyond any recursion limit.
    assert len(lines) == 4001
    assert lines[-1].endswith(str(an_artifact("v0", "blob")))


def test_a_fan_of_two_thousand(catalog: Catalog) -> None:
    fan = [f"sample{n}" for n in range(2000)]
    insert_graph(catalog, [(["weights"], fan), (fan, ["next weights"])])
    assert shape(catalog.lineage.up(an_artifact("next weights").digest)) == (2002, 2, 4002)
    assert shape(catalog.lineage.down(an_artifact("weights").digest)) == (2002, 2, 4002)


def test_paths_are_never_enumerated(catalog: Catalog) -> None:
    # Forty layers of two artifacts, each made from both of the layer before: 2^40 paths, 82 nodes a kind.
    layers = [[f"left{n}", f"right{n}"] for n in range(41)]
    steps = [(below, [name]) for below, above in itertools.pairwise(layers) for name in above]
    insert_graph(catalog, [*steps, (layers[-1], ["top"])])
    top, bottom = an_artifact("top").digest, an_artifact("left0").digest
    assert shape(catalog.lineage.up(top)) == (83, 81, 40 * 2 * 3 + 3)
    assert len(catalog.lineage.down(bottom).artifacts) == 82
    assert shape(catalog.lineage.up(top, depth=20)) == (2 * 20 + 1, 2 * 19 + 1, 19 * 2 * 3 + 3)
    # The drawing too grows with the edges: a shared node is drawn out once and named after that.
    assert len(render_tree(catalog.lineage.up(top)).split("\n")) == 1 + 40 * 2 * 3 + 3
