"""What is kept, and why: on both databases, with bytes in memory."""

from __future__ import annotations

import re

import pytest

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.catalog.given import references_in
from mutoscope.platform.custody.mark import mark, policy_of
from mutoscope.platform.errors import InvalidParameter, UnknownReference
from mutoscope.platform.ids import new_id
from mutoscope.platform.refs import ArtifactRef
from tests.support.collecting import DAY, Holdings
from tests.support.records import a_spec, claim, queue


@pytest.fixture
def held(any_catalog: Catalog) -> Holdings:
    """Rows on each kind of database, where everything may go after a day."""
    any_catalog.retention.add("all", DAY)
    return Holdings(any_catalog, ArtifactStore.open(f"memory://{new_id()}"))


def doomed(held: Holdings) -> set[str]:
    found = mark(held.catalog, policy_of(held.catalog))
    digests = {digest for part in found.digests(3) for digest in part}
    found.close()
    return digests


def reasons(held: Holdings, ref: ArtifactRef) -> list[str]:
    """Without how long a rule still keeps it, which depends on how fast the test runs."""
    found = held.catalog.reasons.of(ref.digest, tuple(held.catalog.retention.list())).reasons
    return [re.sub("; .* are left$", "", reason) for reason in found]


def test_without_rules_everything_is_kept(held: Holdings) -> None:
    held.catalog.retention.remove("all")
    old = held.make("old", age=1000 * DAY)
    assert doomed(held) == set()
    assert reasons(held, old) == ["no rule speaks of latent"]


def test_time_counts_from_when_it_was_last_made_or_used(held: Holdings) -> None:
    new = held.make("new", age=0.5 * DAY)
    old = held.make("old", age=2 * DAY)
    used = held.make("used", age=2 * DAY)
    again = held.make("again", age=2 * DAY)
    held.make("product", "image", used=[used])
    held.make("again")
    assert doomed(held) == {old.digest}
    assert reasons(held, old) == []
    assert reasons(held, new) == ["rule all keeps 1 d"]
    assert reasons(held, used) == reasons(held, again) == ["rule all keeps 1 d"]


def test_runs_that_say_the_same_say_it_once(held: Holdings) -> None:
    held.make("new")
    new = held.make("new", workflow="image_video.t2i_i2v")
    (reason,) = held.catalog.reasons.of(new.digest, tuple(held.catalog.retention.list())).reasons
    assert reason.startswith("rule all keeps 1 d; ")


def test_a_reason_says_for_how_long_a_rule_still_keeps_it(held: Holdings) -> None:
    new = held.make("new", age=0.5 * DAY)
    (reason,) = held.catalog.reasons.of(new.digest, tuple(held.catalog.retention.list())).reasons
    assert re.fullmatch(r"rule all keeps 1 d; (12|11\.\d) h are left", reason)


def test_rules_by_kind_and_workflow_and_the_longest_that_speaks_decides(held: Holdings) -> None:
    rules = held.catalog.retention
    rules.remove("all")
    rules.add("videos", 30 * DAY, kind="video")
    rules.add("scratch", 7 * DAY, workflow="rl.rollout")
    film = held.make("film", "video", age=10 * DAY, workflow="rl.rollout")
    old_film = held.make("old film", "video", age=40 * DAY)
    rollout = held.make("rollout", age=10 * DAY, workflow="rl.rollout")
    fresh = held.make("fresh", age=5 * DAY, workflow="rl.rollout")
    elsewhere = held.make("elsewhere", age=10 * DAY, workflow="image_video.t2i_i2v")
    image = held.make("image", "image", age=1000 * DAY)
    shared = held.make("shared", workflow="rl.rollout")
    held.make("shared", workflow="image_video.t2i_i2v")
    held.age(shared, 10 * DAY)

    assert doomed(held) == {old_film.digest, rollout.digest}
    assert reasons(held, film) == ["rule videos keeps 30 d"]
    assert reasons(held, fresh) == ["rule scratch keeps 7 d"]
    assert reasons(held, elsewhere) == ["no rule speaks of latent made by image_video.t2i_i2v"]
    assert reasons(held, image) == ["no rule speaks of image"]
    assert reasons(held, shared) == ["no rule speaks of latent made by image_video.t2i_i2v"]

    rules.add("scratch-latents", 2 * DAY, kind="latent", workflow="rl.rollout")
    assert fresh.digest not in doomed(held), "a rule more never shortens what another promises"


def test_pins_keep_the_artifact_or_all_that_it_came_from(held: Holdings) -> None:
    weights = held.make("weights", "weights", age=2 * DAY)
    image = held.make("image", "image", used=[weights], age=2 * DAY)
    video = held.make("video", "video", used=[image], age=2 * DAY)
    sequel = held.make("sequel", "video", used=[video], age=2 * DAY)
    chain = [weights.digest, image.digest, video.digest, sequel.digest]
    assert doomed(held) == set(chain)

    held.catalog.pins.add(video.digest, "release-3", note="for the fair")
    assert doomed(held) == {weights.digest, image.digest, sequel.digest}
    assert reasons(held, video) == ["pin release-3"]
    held.catalog.pins.add(video.digest, "release-4", with_inputs=True)
    assert doomed(held) == {sequel.digest}
    assert reasons(held, weights) == ["pin release-4 keeps what it came from"]

    assert held.catalog.pins.remove("release-3").note == "for the fair"
    held.catalog.pins.remove("release-4")
    assert doomed(held) == set(chain)


def test_pins_have_names_of_their_own(held: Holdings) -> None:
    one, two = held.make("one"), held.make("two")
    held.catalog.pins.add(one.digest, "keep")
    with pytest.raises(InvalidParameter, match=f"a pin of that name keeps {one}: unpin it or use another"):
        held.catalog.pins.add(two.digest, "keep")
    with pytest.raises(UnknownReference, match="no pin is named 'other': `mutoscope pins` lists them"):
        held.catalog.pins.remove("other")
    with pytest.raises(InvalidParameter, match="use 1 to 128 letters, digits, dots, dashes and underscores"):
        held.catalog.pins.add(two.digest, "two words")
    with pytest.raises(UnknownReference):
        held.catalog.pins.add("0" * 64, "nothing")


def test_rules_are_checked(held: Holdings) -> None:
    rules = held.catalog.retention
    with pytest.raises(InvalidParameter, match="a rule of that name exists"):
        rules.add("all", 1.0)
    with pytest.raises(InvalidParameter, match="kind='film' is not valid: use one of image, video"):
        rules.add("films", 1.0, kind="film")
    with pytest.raises(InvalidParameter, match="0 or more seconds"):
        rules.add("past", -1.0)
    with pytest.raises(UnknownReference, match="mutoscope retention list"):
        rules.remove("films")


def test_only_the_current_alias_keeps_weights(held: Holdings) -> None:
    weights = held.catalog.weights
    first, second = (held.make(f"v{n}", "weights", age=2 * DAY) for n in (1, 2))
    one = weights.publish("toy-card", "net", first.digest)
    weights.publish("toy-card", "net", second.digest)
    assert doomed(held) == {first.digest}
    assert reasons(held, second) == ["alias toy-card/net@live"]
    weights.set_alias("candidate", one)
    assert doomed(held) == set()
    assert reasons(held, first) == ["alias toy-card/net@candidate"]


def test_what_runs_in_flight_use_is_kept(held: Holdings) -> None:
    image, net = held.make("image", "image", age=2 * DAY), held.make("net", "weights", age=2 * DAY)
    run = queue(held.catalog, "key", inputs={"image": image}, weights={"net": net.digest})
    assert doomed(held) == set()
    assert reasons(held, image) == [f"run {run.id} is queued and uses it"]
    claim(held.catalog)
    assert reasons(held, net) == [f"run {run.id} is running and uses it"]
    held.catalog.runs.fail(run.id, "worker-a", {"type": "E", "message": "m"})
    assert doomed(held) == set(), "it was used just now"
    with held.catalog._database.write() as connection:
        connection.exec_driver_sql("update runs set finished_at = finished_at - 2 * 86400")
    assert doomed(held) == {image.digest, net.digest}


def test_workflows_under_way_keep_what_they_have_and_what_they_were_given(held: Holdings) -> None:
    given, hidden = held.make("given", "image", age=2 * DAY), held.make("hidden", age=2 * DAY)
    workflows = held.catalog.workflows
    parent = workflows.start("rl.epoch", {"image": str(given), "deep": [{"latent": hidden.digest}]})
    child = workflows.start("rl.rollout", {}, parent)
    made = held.put("made")
    held.catalog.runs.record_completed("engine", generated={"made": made}, workflow_run_id=child)
    held.age(made, 2 * DAY)
    workflows.finish(child, "succeeded")
    assert doomed(held) == set()
    assert reasons(held, made) == [f"rl.rollout {child} is under way and has it"]
    assert reasons(held, given) == [f"rl.epoch {parent} is under way and was given it"]
    workflows.finish(parent, "failed", error={"type": "E", "message": "m"})
    assert doomed(held) == {given.digest, hidden.digest, made.digest}


def test_what_the_memo_hands_out_counts_as_made_and_is_the_asking_workflows_too(held: Holdings) -> None:
    made, other = held.put("made"), held.put("other")
    for name, ref in (("made", made), ("other", other)):
        run = queue(held.catalog, name)
        claim(held.catalog)
        held.catalog.runs.succeed(run.id, "worker-a", {"latent": ref})
        held.age(ref, 2 * DAY)
    assert doomed(held) == {made.digest, other.digest}
    assert held.catalog.runs.enqueue(a_spec("made"), present=held.store.contains).disposition == "hit"
    assert doomed(held) == {other.digest}
    assert reasons(held, made) == ["rule all keeps 1 d"]

    within = held.catalog.workflows.start("rl.rollout", {})
    hit = held.catalog.runs.enqueue(a_spec("other", workflow_run_id=within), present=held.store.contains)
    assert hit.disposition == "hit"
    with held.catalog._database.write() as connection:
        connection.exec_driver_sql("update calls set created_at = created_at - 2 * 86400")
    assert doomed(held) == {made.digest}
    assert reasons(held, other) == [f"rl.rollout {within} is under way and has it"]
    held.catalog.workflows.finish(within, "succeeded")
    assert doomed(held) == {made.digest, other.digest}

    held.catalog.retention.remove("all")
    held.catalog.retention.add("rollouts", DAY, workflow="rl.rollout")
    assert reasons(held, other) == ["no rule speaks of latent"], "it was made outside of it, too"


def test_references_are_recognised_in_parameters() -> None:
    digest = "3fa9c1" + "0" * 58
    given = {
        "a": "image:3fa9c1",
        "b": ["film:3fa9c1", digest, "image:3fa9c1 and more"],
        "c": {"d": 7, "e": "7"},
    }
    assert list(references_in(given)) == ["image:3fa9c1", digest]


def test_leases_keep_while_they_last(held: Holdings) -> None:
    read = held.make("read", age=2 * DAY)
    with held.catalog.leases.reading([read.digest], "the exporter"):
        assert doomed(held) == set()
        assert reasons(held, read) == ["lease held by the exporter"]
    assert doomed(held) == {read.digest}


def test_containers_keep_their_members_and_shared_ones_outlive_either(held: Holdings) -> None:
    base, delta, norm, loose = (
        held.make(name, "blob", age=2 * DAY) for name in ("base", "delta", "norm", "x")
    )
    first = held.make("first", "weights", members={"base": base, "norm": norm})
    second = held.make("second", "weights", members={"base": base, "delta": delta})
    for ref in (first, second, base, delta, norm):
        held.age(ref, 2 * DAY)
    held.catalog.weights.publish("toy-card", "net", second.digest)
    assert doomed(held) == {first.digest, norm.digest, loose.digest}
    assert reasons(held, base) == [f"base of {second}, kept: alias toy-card/net@live"]
    assert reasons(held, norm) == []


def test_containers_within_containers_are_resolved_to_the_bottom(held: Holdings) -> None:
    tensor = held.make("tensor", "blob", age=2 * DAY)
    component = held.make("component", "weights", members={"t": tensor})
    checkpoint = held.make("checkpoint", "weights", members={"net": component})
    for ref in (tensor, component, checkpoint):
        held.age(ref, 2 * DAY)
    found = mark(held.catalog, policy_of(held.catalog))
    assert list(found.batches(1)) == [[checkpoint.digest], [component.digest], [tensor.digest]]
    found.close()
    held.catalog.pins.add(checkpoint.digest, "keep")
    assert doomed(held) == set()
    assert reasons(held, tensor) == [f"t of {component}, kept: net of {checkpoint}, kept: pin keep"]


def test_recomputable_artifacts_go_first_by_bytes_per_second(held: Holdings) -> None:
    source = held.make("source", "image")

    def engine(name: str, seconds: float, size: int) -> ArtifactRef:
        ref = held.store.put(name.encode() * size, kind="latent", media_type="application/octet-stream")
        spec = a_spec(name, inputs={"image": source}, key_parts={"card": "toy-card"})
        run = held.catalog.runs.enqueue(spec, present=lambda ref: False).run
        claim(held.catalog)
        held.catalog.runs.succeed(
            run.id, "worker-a", {"latent": ref}, {"denoise": seconds / 2, "vae": seconds / 2}
        )
        held.age(ref, 2 * DAY)
        return ref

    dear, cheap = engine("a", seconds=100.0, size=1000), engine("b", seconds=1.0, size=500)
    lost = held.make("l" * 500, age=2 * DAY)

    found = mark(held.catalog, policy_of(held.catalog))
    assert next(found.batches(10)) == [cheap.digest, dear.digest, lost.digest]
    assert [(c.digest, c.bytes_per_second) for c in found.replayable(5)] == [
        (cheap.digest, 500.0),
        (dear.digest, 10.0),
    ]
    assert [c.digest for c in found.largest(1)] == [lost.digest]
    (kind,) = found.by_kind()
    assert (kind.kind, kind.count, kind.size, kind.replayable) == ("latent", 3, 1000 + 500 + lost.size, 2)
    found.close()

    held.catalog._database.engine.dispose()
    with held.catalog._database.write() as connection:
        connection.exec_driver_sql(
            f"update artifacts set state = 'tombstone' where digest = '{source.digest}'"
        )
    found = mark(held.catalog, policy_of(held.catalog))
    assert found.replayable(5) == [], "an input is gone"
    found.close()


def test_a_tombstone_is_no_candidate_and_pins_refuse_it(held: Holdings) -> None:
    gone = held.make("gone", age=2 * DAY)
    held.collect(grace=DAY)
    assert doomed(held) == set()
    standing = held.catalog.reasons.of(gone.digest, ())
    assert (standing.state, standing.reasons) == ("tombstone", ())
    assert standing.collected_at is not None
    assert standing.purged_at is None
    with pytest.raises(InvalidParameter, match="it was collected: `mutoscope trash restore`"):
        held.catalog.pins.add(gone.digest, "late")
