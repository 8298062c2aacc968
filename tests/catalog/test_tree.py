"""Lineage as people read it, compared whole."""

from __future__ import annotations

from mutoscope.platform.catalog import ArtifactRow, Catalog, Member, render_tree
from mutoscope.platform.catalog.tree import SIBLINGS
from tests.support.records import a_spec, absent, an_artifact, claim
from tests.support.text import assert_text

IMAGE, VIDEO = an_artifact("image"), an_artifact("video", "video")
NET, TEXT, VAE = (an_artifact(name, "weights") for name in ("net", "text", "vae"))


def film(catalog: Catalog) -> None:
    """Two cards that share a text encoder; the image is made twice, the second time by a queued run."""
    imported = catalog.runs.record_completed(
        "import", card="flux-t2i", generated={"weights:transformer": NET, "weights:clip": TEXT}
    )
    catalog.weights.publish_all("flux-t2i", {"transformer": NET.digest, "clip": TEXT.digest}, imported.id)
    imported = catalog.runs.record_completed(
        "import", card="wan-i2v", generated={"weights:vae": VAE, "weights:clip": TEXT}
    )
    catalog.weights.publish_all("wan-i2v", {"vae": VAE.digest, "clip": TEXT.digest}, imported.id)
    for _ in range(2):
        spec = a_spec(seed=7, weights={"transformer": NET.digest, "clip": TEXT.digest})
        run = catalog.runs.enqueue(spec, present=absent).run
        claim(catalog)
        catalog.runs.succeed(run.id, "worker-a", {"image": IMAGE, "latent": an_artifact("latent", "latent")})
    spec = a_spec("film", inputs={"image": IMAGE}, weights={"vae": VAE.digest, "clip": TEXT.digest})
    run = catalog.runs.enqueue(spec, present=absent).run
    claim(catalog)
    catalog.runs.succeed(run.id, "worker-a", {"video": VIDEO})


def test_upwards(catalog: Catalog) -> None:
    film(catalog)
    assert_text(
        render_tree(catalog.lineage.up(VIDEO.digest)),
        """
        video:***
        └─ toy-card run ***  seed=7
           ├─ image: image:***
           │  ├─ toy-card run ***  seed=7
           │  │  ├─ weights:clip: flux-t2i/clip@1 = wan-i2v/clip@1  weights:***
           │  │  │  ├─ flux-t2i import ***
           │  │  │  └─ wan-i2v import ***
           │  │  └─ weights:transformer: flux-t2i/transformer@1  weights:***
           │  │     └─ flux-t2i import ***
           │  └─ toy-card run ***  seed=7
           │     ├─ weights:clip: flux-t2i/clip@1 = wan-i2v/clip@1  weights:***  (see above)
           │     └─ weights:transformer: flux-t2i/transformer@1  weights:***  (see above)
           ├─ weights:clip: flux-t2i/clip@1 = wan-i2v/clip@1  weights:***  (see above)
           └─ weights:vae: wan-i2v/vae@1  weights:***
              └─ wan-i2v import ***
        """,
    )


def test_downwards(catalog: Catalog) -> None:
    film(catalog)
    assert_text(
        render_tree(catalog.lineage.down(NET.digest)),
        """
        flux-t2i/transformer@1  weights:***
        ├─ toy-card run ***  seed=7
        │  ├─ image: image:***
        │  │  └─ toy-card run ***  seed=7
        │  │     └─ video: video:***
        │  └─ latent: latent:***
        └─ toy-card run ***  seed=7
           ├─ image: image:***  (see above)
           └─ latent: latent:***
        """,
    )


def test_one_generation(catalog: Catalog) -> None:
    film(catalog)
    assert_text(
        render_tree(catalog.lineage.up(VIDEO.digest, 1)),
        """
        video:***
        └─ toy-card run ***  seed=7
           ├─ image: image:***
           ├─ weights:clip: flux-t2i/clip@1 = wan-i2v/clip@1  weights:***
           └─ weights:vae: wan-i2v/vae@1  weights:***
        """,
    )


def test_unfinished_users_say_so(catalog: Catalog) -> None:
    catalog.runs.enqueue(a_spec(inputs={"first": IMAGE, "last": IMAGE}, seed=None), present=absent)
    assert_text(
        render_tree(catalog.lineage.down(IMAGE.digest)),
        """
        image:***
        └─ toy-card run ***  queued
        """,
    )


def test_a_brief_tree_folds_siblings_but_never_a_single_one(catalog: Catalog) -> None:
    for n in range(SIBLINGS + 1):
        spec = a_spec(
            f"picture {n}", seed=n, weights={"net": NET.digest}, inputs={"text": an_artifact("t", "text")}
        )
        catalog.artifacts.record(NET)
        run = catalog.runs.enqueue(spec, present=absent).run
        claim(catalog)
        catalog.runs.succeed(run.id, "worker-a", {"image": an_artifact(f"picture {n}")})
    graph = catalog.lineage.down(NET.digest)
    assert render_tree(graph, limit=100) == render_tree(graph)
    catalog.runs.enqueue(a_spec("waiting", weights={"net": NET.digest}), present=absent)
    catalog.runs.enqueue(a_spec("more", weights={"net": NET.digest}), present=absent)
    # Two that wait are another sort than those that are done.
    assert "more" not in render_tree(catalog.lineage.down(NET.digest), limit=100)
    record = catalog.runs.record_completed
    for n in range(2):
        record("engine", card="toy-card", used={"net": NET}, generated={"image": an_artifact(f"late {n}")})
    assert render_tree(catalog.lineage.down(NET.digest), limit=100).split("\n")[-1] == (
        "└─ … 3 more toy-card runs: 3 images"
    )


def test_a_brief_tree_counts_what_it_leaves_out(catalog: Catalog) -> None:
    film(catalog)
    graph = catalog.lineage.up(VIDEO.digest)
    nodes = len(graph.artifacts) + len(graph.runs)
    for limit in range(2, 8):
        lines = render_tree(graph, limit=limit).split("\n")
        assert (len(lines), lines[-1]) == (limit, f"… and {nodes - limit + 1} more")
    assert render_tree(graph, limit=1) == render_tree(graph, limit=2)
    whole = render_tree(graph).split("\n")
    assert render_tree(graph, limit=len(whole)).split("\n") == whole


def test_a_container_tells_how_many_parts_it_has(catalog: Catalog) -> None:
    imported = catalog.runs.record_completed("import", card="flux-t2i", generated={"weights:net": NET})
    catalog.weights.publish("flux-t2i", "net", NET.digest, imported.id)
    parts = [an_artifact(f"tensor {n}", "blob") for n in range(3)]
    with catalog.bulk() as bulk:
        bulk.artifacts(ArtifactRow(part, 0.0) for part in parts)
        bulk.members(Member(NET.digest, f"tensor {n}", part.digest) for n, part in enumerate(parts))
    assert_text(
        render_tree(catalog.lineage.up(NET.digest)),
        """
        flux-t2i/net@1  weights:***  3 parts, 24 B
        └─ flux-t2i import ***
        """,
    )
