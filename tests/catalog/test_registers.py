"""The smaller registers: artifacts, workers, workflow runs."""

from __future__ import annotations

import pytest
from sqlalchemy import event, update

from mutoscope.platform.catalog import Catalog, WorkerInfo, worker_facts
from mutoscope.platform.catalog.tables import artifacts
from mutoscope.platform.errors import AmbiguousReference, UnknownReference
from mutoscope.platform.refs import ArtifactRef
from tests.support.deadline import until
from tests.support.records import an_artifact, make


def with_digest(digits: str, kind: str = "image") -> ArtifactRef:
    return ArtifactRef(digits.ljust(64, "0"), kind, "image/png", 1)


def test_an_artifact_is_found_by_a_unique_beginning(catalog: Catalog) -> None:
    one, two, film = with_digest("3fa9c1"), with_digest("3fa9c2"), with_digest("3fa9", "video")
    for ref in (one, two, film):
        catalog.artifacts.record(ref)
    assert catalog.artifacts.resolve("3fa9c1") == one
    assert catalog.artifacts.resolve("image:3fa9c2") == two
    assert catalog.artifacts.resolve("video:3f") == film
    assert catalog.artifacts.resolve(two.digest) == two
    with pytest.raises(AmbiguousReference, match=f"{film}, {one}, {two}.*add digits"):
        catalog.artifacts.resolve("3fa9")
    with pytest.raises(AmbiguousReference):
        catalog.artifacts.resolve("image:3fa9")
    for nothing in ("3fb", "video:3fa9c", "text:3fa9", "3fa9c1" + "0" * 57 + "1"):
        with pytest.raises(UnknownReference, match="mutoscope ls"):
            catalog.artifacts.resolve(nothing)


def test_many_candidates_are_shown_in_part(catalog: Catalog) -> None:
    for digit in "0123456789":
        catalog.artifacts.record(with_digest(f"ab{digit}"))
    with pytest.raises(AmbiguousReference) as several:
        catalog.artifacts.resolve("ab")
    assert str(several.value).count("image:ab") == 5
    assert ", ..." in str(several.value)


def test_the_first_record_stays_and_a_tombstone_is_revived(catalog: Catalog) -> None:
    first = an_artifact("a", meta={"height": 64})
    catalog.artifacts.record(first)
    catalog.artifacts.record(an_artifact("a", kind="blob"))
    assert catalog.artifacts.get(first.digest) == first
    with catalog._database.write() as connection:
        connection.execute(update(artifacts).values(state="tombstone"))
    assert catalog.artifacts.state(first.digest) == "tombstone"
    assert catalog.artifacts.get(first.digest) == first, "rows outlive bytes"
    catalog.artifacts.record(first)
    assert catalog.artifacts.state(first.digest) == "present"
    assert catalog.artifacts.get("0" * 64) is catalog.artifacts.state("0" * 64) is None


def test_artifacts_are_listed_newest_first(catalog: Catalog) -> None:
    workflow_run = catalog.workflows.start("text_to_image", {})
    made = an_artifact("made")
    make(catalog, "key", {"image": made}, workflow_run_id=workflow_run)
    older = catalog.artifacts.list()
    until(lambda: _record(catalog, an_artifact("film", "video"), older), "a later millisecond")
    assert catalog.artifacts.list()[0].kind == "video"
    assert catalog.artifacts.list(kind="image") == [made]
    assert catalog.artifacts.list(workflow="text_to_image") == [made]
    assert catalog.artifacts.list(workflow="other") == []
    assert len(catalog.artifacts.list(limit=1)) == 1


def _record(catalog: Catalog, ref: ArtifactRef, older: list[ArtifactRef]) -> bool:
    catalog.artifacts.record(ref)
    return len(catalog.artifacts.list()) == len(older) + 1


CARDS = {"toy-card": {"contract": {"device": "cpu"}, "weights": {}}}


def worker(name: str = "worker-a", **changes: object) -> WorkerInfo:
    values: dict[str, object] = {"host": "here", "pid": 1, "device": "cpu", "cards": CARDS}
    return WorkerInfo(name, **{**values, **changes})  # type: ignore[arg-type]


def test_a_registered_worker_lives(catalog: Catalog) -> None:
    catalog.workers.register(worker())
    (seen,) = catalog.workers.alive("toy-card")
    assert (seen.id, seen.host, seen.pid, seen.device, seen.cards, seen.state) == (
        "worker-a",
        "here",
        1,
        "cpu",
        CARDS,
        "idle",
    )
    assert seen.started_at is not None
    assert seen.age is not None
    assert seen.alive()
    assert catalog.workers.alive("other-card") == []
    assert len(catalog.workers.alive()) == 1


def test_silence_is_death_until_the_next_heartbeat(catalog: Catalog) -> None:
    catalog.workers.register(worker())
    until(lambda: not catalog.workers.alive(within_seconds=0.001), "the heartbeat grows old")
    (silent,) = catalog.workers.list()
    assert not silent.alive(within_seconds=0.001)
    catalog.workers.heartbeat("worker-a", state="busy", cards={})
    (seen,) = catalog.workers.alive()
    assert (seen.state, seen.cards) == ("busy", {})
    assert seen.heartbeat_at is not None
    assert silent.heartbeat_at is not None
    assert seen.heartbeat_at > silent.heartbeat_at
    assert seen.started_at == silent.started_at


def test_a_stopped_worker_is_not_alive(catalog: Catalog) -> None:
    catalog.workers.register(worker())
    catalog.workers.mark_stopped("worker-a")
    assert catalog.workers.alive() == []
    assert [w.state for w in catalog.workers.list()] == ["stopped"]


def test_a_heartbeat_of_nobody_is_refused(catalog: Catalog) -> None:
    with pytest.raises(UnknownReference, match="register it first"):
        catalog.workers.heartbeat("worker-a")


def test_the_contract_is_that_of_a_living_worker_before_the_last_one(catalog: Catalog) -> None:
    assert catalog.workers.contract("toy-card") is None
    catalog.workers.register(worker("gone", cards={"toy-card": {"contract": {"device": "cuda"}}}))
    catalog.workers.mark_stopped("gone")
    assert catalog.workers.contract("toy-card") == {"device": "cuda"}
    catalog.workers.register(worker("here"))
    catalog.workers.register(worker("newer", cards={"toy-card": {"contract": {"device": "tpu"}}}))
    catalog.workers.mark_stopped("newer")
    assert catalog.workers.contract("toy-card") == {"device": "cpu"}
    assert catalog.workers.contract("other-card") is None


def test_a_workflow_run_from_start_to_finish(catalog: Catalog) -> None:
    image = an_artifact("image")
    parent = catalog.workflows.start(
        "text_to_video", {"prompt": "a circle", "seed": 7}, prefect_flow_run_id="flow-1"
    )
    child = catalog.workflows.start("text_to_image", {}, parent_id=parent)
    record = catalog.workflows.get(parent)
    assert (record.state, record.parameters, record.finished_at) == (
        "running",
        {"prompt": "a circle", "seed": 7},
        None,
    )
    assert catalog.workflows.find_by_flow_run("flow-1") == record
    assert catalog.workflows.find_by_flow_run("flow-2") is None
    assert [r.id for r in catalog.workflows.list()] == [child, parent]
    assert [r.id for r in catalog.workflows.list(parent_id=parent)] == [child]

    done = catalog.workflows.finish(parent, "succeeded", outputs={"image": image})
    assert (done.state, done.outputs, done.error) == ("succeeded", {"image": image.digest}, None)
    assert done.finished_at is not None
    failed = catalog.workflows.finish(child, "failed", error={"message": "no"})
    assert (failed.state, failed.outputs, failed.error) == ("failed", None, {"message": "no"})
    assert (
        catalog.workflows.list(state="failed") == catalog.workflows.list(workflow="text_to_image") == [failed]
    )


def test_workflow_runs_are_found_by_the_beginning_of_their_id(catalog: Catalog) -> None:
    first, second = catalog.workflows.start("a", {}), catalog.workflows.start("a", {})
    common = next(i for i in range(36) if first[i] != second[i])
    assert catalog.workflows.find(first[: common + 1]).id == first
    with pytest.raises(AmbiguousReference):
        catalog.workflows.find(first[:common])
    for missing in ("ffffffff", "zz"):
        with pytest.raises(UnknownReference, match="mutoscope ls"):
            catalog.workflows.find(missing)
    with pytest.raises(UnknownReference):
        catalog.workflows.get("ffffffff")


def test_what_a_live_worker_says_is_read_again_when_it_has_said_something_since(catalog: Catalog) -> None:
    catalog.workers.register(worker())
    settled = worker_facts.SETTLED_SECONDS
    until(lambda: (catalog.workers.alive()[0].age or 0) > settled, "facts that may be kept")
    asked: list[str] = []

    def note(connection: object, cursor: object, statement: str, *rest: object) -> None:
        if not statement.startswith("BEGIN"):
            asked.append(statement)

    event.listen(catalog._database.engine, "before_cursor_execute", note)
    assert [one.cards for one in catalog.workers.alive()] == [CARDS]
    assert len(asked) == 1, "who lives is asked, and what it says is known"
    changed = {"toy-card": {"contract": {"device": "cuda"}}}
    catalog.workers.heartbeat("worker-a", cards=changed)
    assert catalog.workers.contract("toy-card") == {"device": "cuda"}
    assert len(asked) == 4, "the heartbeat, who lives, and what it says now"
    event.remove(catalog._database.engine, "before_cursor_execute", note)
