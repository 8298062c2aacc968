"""The questions people ask of lineage: which weights, what was made, how far it reaches, what differs."""

from __future__ import annotations

import pytest
from sqlalchemy import insert, update

from mutoscope.platform.catalog import Catalog
from mutoscope.platform.catalog.tables import artifacts, members
from mutoscope.platform.errors import InvalidParameter, UnknownReference
from mutoscope.platform.refs import ArtifactRef
from tests.support.records import an_artifact, make, queue
from tests.support.story import SAMPLES, Story, tell

NOBODY = "0" * 64


@pytest.fixture
def story(catalog: Catalog) -> Story:
    return tell(catalog)


def hold(catalog: Catalog, container: ArtifactRef, *parts: ArtifactRef) -> None:
    """Record that a container consists of parts."""
    for part in parts:
        catalog.artifacts.record(part)
    with catalog._database.write() as connection:
        connection.execute(
            insert(members),
            [
                {"container": container.digest, "path": f"part {n}", "artifact_digest": part.digest}
                for n, part in enumerate(parts)
            ],
        )


def test_weights_of_end_where_weights_begin(catalog: Catalog, story: Story) -> None:
    film = story.films["second"].digest
    uses = catalog.lineage.weights_of(film)
    assert [(use.card, use.component, str(use.versions[0])) for use in uses] == [
        ("wan-i2v", "transformer", "wan-i2v/transformer@1"),
        ("flux-t2i", "transformer", "flux-t2i/transformer@2"),
        ("flux-t2i", "vae", "flux-t2i/vae@1"),
    ]
    # The version that made it was trained with the one before and with a scorer: its story, not the film's.
    history = {str(use.versions[0]) for use in catalog.lineage.weights_of(film, history=True)}
    assert {"flux-t2i/transformer@1", "aesthetics/net@1"} < history
    graph = catalog.lineage.up(film, history=False)
    assert not any(run.kind in ("train", "import") for run in graph.runs.values())
    assert story.weights["transformer 2"].digest in graph.artifacts


def test_weights_of_weights_are_those_that_trained_them(catalog: Catalog, story: Story) -> None:
    uses = catalog.lineage.weights_of(story.weights["transformer 2"].digest)
    assert {str(use.versions[0]) for use in uses} == {
        "flux-t2i/transformer@1",
        "flux-t2i/vae@1",
        "aesthetics/net@1",
    }
    assert len(uses) == 1 + 3 * SAMPLES


def test_a_closure_holds_the_ids_of_the_graph(catalog: Catalog, story: Story) -> None:
    for down, digest in ((False, story.films["second"].digest), (True, story.weights["scorer"].digest)):
        for depth in (None, 1, 2, 50):
            graph = (catalog.lineage.down if down else catalog.lineage.up)(digest, depth)
            closure = catalog.lineage.closure(digest, down=down, depth=depth)
            assert sorted(closure.artifacts) == sorted(graph.artifacts)
            assert sorted(closure.runs) == sorted(graph.runs)


def test_made_lists_an_artifact_once_where_it_was_made_last(catalog: Catalog) -> None:
    net, twice, other = an_artifact("net", "weights"), an_artifact("twice"), an_artifact("other")

    def run(*slots: str, makes: dict[str, ArtifactRef]) -> str:
        return catalog.runs.record_completed("engine", used=dict.fromkeys(slots, net), generated=makes).id

    run("weights:net", makes={"image": twice})
    plain = run("weights:net", makes={"image": other})
    both = run("weights:net", "weights:refiner", makes={"a": twice, "b": twice})
    # Made without the net in question since: no business of its list.
    catalog.runs.record_completed("engine", used={}, generated={"image": twice})
    found = catalog.lineage.made(net.digest).makings
    assert [(one.ref, one.run_id, one.role) for one in found] == [(twice, both, "a"), (other, plain, "image")]
    pages, after = [], None
    while True:
        page = catalog.lineage.made(net.digest, limit=1, after=after)
        pages += [one.ref for one in page.makings]
        if (after := page.next) is None:
            break
    assert pages == [twice, other]


def test_a_page_is_not_shifted_by_what_is_made_meanwhile(catalog: Catalog) -> None:
    net = an_artifact("net", "weights")
    for n in range(4):
        catalog.runs.record_completed(
            "engine", used={"weights:net": net}, generated={"image": an_artifact(f"{n}")}
        )
    first = catalog.lineage.made(net.digest, limit=2)
    catalog.runs.record_completed(
        "engine", used={"weights:net": net}, generated={"image": an_artifact("new")}
    )
    second = catalog.lineage.made(net.digest, limit=2, after=first.next)
    assert [one.ref for one in (*first.makings, *second.makings)] == [
        an_artifact(f"{n}") for n in (3, 2, 1, 0)
    ]
    assert second.next is None


def test_made_by_kind(catalog: Catalog, story: Story) -> None:
    net = story.weights["transformer 1"].digest
    kinds = {one.ref.kind for one in catalog.lineage.made(net).makings}
    assert kinds == {"image", "weights"}
    only = catalog.lineage.made(net, kinds=("weights",))
    assert [one.ref for one in only.makings] == [story.weights["transformer 2"]]


def test_impact_in_numbers(catalog: Catalog, story: Story) -> None:
    queue(catalog, "waiting", inputs={"image": story.images["second"]})
    with catalog._database.write() as connection:
        gone = artifacts.c.digest == story.films["second"].digest
        connection.execute(update(artifacts).where(gone).values(state="tombstone", collected_at=1.0))
    found = catalog.lineage.impact(story.weights["scorer"].digest)
    assert {kind.kind: (kind.count, kind.collected) for kind in found.kinds} == {
        "reward": (SAMPLES, 0),
        "weights": (1, 0),
        "image": (2, 0),
        "video": (2, 1),
    }
    # A scoring run for each sample, the step, two workflows of two runs each, and one that waits.
    assert (found.runs, found.unfinished) == (SAMPLES + 1 + 4 + 1, 1)
    assert [(one.workflow, one.runs, one.artifacts) for one in found.workflows] == [
        (None, SAMPLES + 2, SAMPLES + 1),
        ("image_video.t2i_i2v", 4, 4),
    ]
    assert [str(version) for version in found.versions] == ["flux-t2i/transformer@2"]
    assert found.live == found.versions
    downstream = catalog.lineage.downstream(story.weights["scorer"].digest)
    assert (len(downstream), sum(one.ref.size for one in downstream)) == (found.count, found.size)
    assert [one.ref for one in downstream if not one.present] == [story.films["second"]]
    runs = [catalog.runs.get(run) for run in catalog.lineage.closure(found.root.ref.digest, down=True).runs]
    assert (found.first_at, found.last_at) == (
        min(run.created_at for run in runs),
        max(run.created_at for run in runs),
    )


def test_impact_reaches_through_containers(catalog: Catalog, story: Story) -> None:
    tensor, other = an_artifact("tensor", "blob"), an_artifact("another tensor", "blob")
    hold(catalog, story.weights["transformer 1"], tensor, other)
    hold(catalog, story.weights["transformer 2"], other)
    assert catalog.lineage.down(tensor.digest).runs == {}
    assert catalog.lineage.containers(other.digest) == tuple(
        sorted(story.weights[name].digest for name in ("transformer 1", "transformer 2"))
    )
    whole = catalog.lineage.impact(story.weights["transformer 1"].digest)
    reached = catalog.lineage.impact(tensor.digest)
    # All that the weights reach, and the weights themselves.
    assert (reached.runs, reached.count) == (whole.runs, whole.count + 1)
    assert "flux-t2i/transformer@1" in {str(version) for version in reached.versions}
    # The way up names members in sum only, and never walks through them.
    node = catalog.lineage.up(story.films["first"].digest).artifacts[story.weights["transformer 1"].digest]
    assert node.parts is not None
    assert (node.parts.count, node.parts.size) == (2, tensor.size + other.size)
    assert tensor.digest not in catalog.lineage.up(story.films["first"].digest).artifacts


def test_impact_of_what_nobody_used(catalog: Catalog) -> None:
    catalog.artifacts.record(an_artifact("alone"))
    found = catalog.lineage.impact(an_artifact("alone").digest)
    assert (found.runs, found.count, found.size, found.kinds, found.first_at) == (0, 0, 0, (), None)


def test_diff_names_a_difference_where_it_comes_from(catalog: Catalog, story: Story) -> None:
    found = catalog.lineage.diff(story.films["first"].digest, story.films["second"].digest)
    (step,) = found.steps
    assert (step.depth, step.path, step.unexplained) == (1, ("image",), False)
    (one,) = step.differences
    assert (one.field, one.left, one.right) == (
        "weights:transformer",
        "flux-t2i/transformer@1",
        "flux-t2i/transformer@2",
    )
    assert found.compared == 2
    assert found.incidents == ()
    back = catalog.lineage.diff(story.films["second"].digest, story.films["first"].digest)
    assert [(one.left, one.right) for one in back.steps[0].differences] == [(one.right, one.left)]


def test_diff_of_equal_recipes_points_to_the_incident(catalog: Catalog, story: Story) -> None:
    found = catalog.lineage.diff(story.films["first"].digest, story.films["again"].digest)
    (step,) = found.steps
    # The films differ because the pictures do, and the pictures for no reason on record.
    assert (step.path, step.differences, step.unexplained) == (("image",), (), True)
    assert step.left_run is not None
    assert [incident.memo_key for incident in found.incidents] == [step.left_run.memo_key]


def test_diff_of_one_artifact(catalog: Catalog, story: Story) -> None:
    found = catalog.lineage.diff(story.films["first"].digest, story.films["first"].digest)
    assert found.same_bytes
    assert (found.steps, found.compared) == ((), 0)


def test_diff_of_what_nobody_made(catalog: Catalog) -> None:
    uploads = [an_artifact(f"upload {n}") for n in (1, 2)]
    films = [an_artifact(f"film {n}", "video") for n in (1, 2)]
    for n in (0, 1):
        make(catalog, f"film {n}", {"video": films[n]}, inputs={"image": uploads[n]})
    (step,) = catalog.lineage.diff(films[0].digest, films[1].digest).steps
    assert [(one.field, one.left, one.right) for one in step.differences] == [
        ("image", str(uploads[0]), str(uploads[1]))
    ]
    (step,) = catalog.lineage.diff(uploads[0].digest, films[0].digest).steps
    assert step.differences[0].field == "made by"
    assert step.differences[0].left is None


def test_diff_tells_machine_and_code_apart(catalog: Catalog) -> None:
    images = [an_artifact(f"image {n}") for n in (1, 2)]
    for n, (torch, code) in enumerate([("2.12.0", "a" * 64), ("2.13.0", "b" * 64)]):
        parts = {"numeric": {"versions": {"torch": torch}, "threads": 1}}
        make(catalog, f"key {n}", {"image": images[n]}, key_parts=parts, card_digest=code)
    (step,) = catalog.lineage.diff(images[0].digest, images[1].digest).steps
    assert [(one.field, one.left, one.right) for one in step.differences] == [
        ("code", "a" * 12, "b" * 12),
        ("numeric.versions.torch", "2.12.0", "2.13.0"),
    ]


def test_the_input_that_was_stated_is_the_one_recorded(catalog: Catalog) -> None:
    """Not the latest of its kind: a newer picture, even one by the same card and seed, is nobody's source."""
    older, newer, film = an_artifact("older"), an_artifact("newer"), an_artifact("film", "video")
    make(catalog, "older", {"image": older})
    run = queue(catalog, "film", inputs={"image": older})
    catalog.runs.record_completed("engine", card="toy-card", seed=7, generated={"image": newer})
    catalog.runs.claim("worker-a", {run.card or "": run.contract or ""}, 60.0, 1)
    catalog.runs.succeed(run.id, "worker-a", {"video": film})
    graph = catalog.lineage.up(film.digest)
    assert older.digest in graph.artifacts
    assert newer.digest not in graph.artifacts
    assert film.digest not in catalog.lineage.closure(newer.digest, down=True).artifacts


def test_the_source_of_a_picture_made_from_a_picture_is_kept(catalog: Catalog) -> None:
    """Also when it was uploaded, and when the result replaced it in the workflow's outputs."""
    upload, first, second = (an_artifact(name) for name in ("upload", "first", "second"))
    catalog.artifacts.record(upload)
    make(catalog, "one", {"image": first}, inputs={"image": upload})
    make(catalog, "two", {"image": second}, inputs={"image": first, "mask": upload})
    roles = {
        (edge.role, edge.digest)
        for edge in catalog.lineage.up(second.digest).edges
        if edge.direction == "used"
    }
    assert roles == {("image", upload.digest), ("image", first.digest), ("mask", upload.digest)}


def test_a_checkpoint_that_is_gone_still_answers(catalog: Catalog, story: Story) -> None:
    with catalog._database.write() as connection:
        connection.execute(update(artifacts).values(state="tombstone", collected_at=1.0))
    film, net = story.films["second"].digest, story.weights["transformer 2"].digest
    assert not any(use.present for use in catalog.lineage.weights_of(film))
    assert len(catalog.lineage.made(net).makings) == 2
    assert not any(one.present for one in catalog.lineage.made(net).makings)
    found = catalog.lineage.impact(net)
    assert not found.root.present
    assert found.count == sum(kind.collected for kind in found.kinds) == 4
    assert catalog.lineage.diff(film, story.films["first"].digest).steps


def test_strangers_and_nonsense(catalog: Catalog, story: Story) -> None:
    lineage = catalog.lineage
    for ask in (lineage.closure, lineage.made, lineage.impact, lineage.downstream, lineage.weights_of):
        with pytest.raises(UnknownReference, match="mutoscope ls"):
            ask(NOBODY)
    with pytest.raises(UnknownReference, match="mutoscope ls"):
        lineage.diff(story.films["first"].digest, NOBODY)
    net = story.weights["vae"].digest
    for cursor in ("", "2", f"{'a' * 36}/1", f"{'a' * 36}/99999999999/image", "x" * 36 + "/0/image"):
        with pytest.raises(InvalidParameter, match="after"):
            lineage.made(net, after=cursor)
    with pytest.raises(InvalidParameter, match="limit"):
        lineage.made(net, limit=0)
    with pytest.raises(InvalidParameter, match="depth"):
        lineage.closure(net, depth=0)
