"""The caller's half of the queue: one run per key, hits only where the bytes are, cancelled by the last."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import text

from mutoscope.platform.catalog import Catalog
from mutoscope.platform.errors import AmbiguousReference, InvalidParameter, UnknownReference
from mutoscope.platform.refs import ArtifactRef
from tests.support.records import CARD, a_spec, absent, an_artifact, claim, make, present, queue

IMAGE = an_artifact("image")
LATENT = an_artifact("latent", "latent")


def test_a_queued_run_holds_the_whole_spec(catalog: Catalog) -> None:
    catalog.artifacts.record(an_artifact("w", "weights"))
    workflow_run = catalog.workflows.start("text_to_image", {})
    spec = a_spec(
        inputs={"image": IMAGE},
        weights={"transformer": an_artifact("w", "weights").digest},
        key_parts={"seed": 7, "card": {"id": CARD}},
        profile="rollout",
        workflow_run_id=workflow_run,
        prefect_flow_run_id="flow",
        prefect_task_run_id="task",
        priority=3,
        max_attempts=5,
    )
    run = catalog.runs.enqueue(spec, present=present).run
    assert run == catalog.runs.get(run.id)
    for name in ("kind", "card", "card_digest", "contract", "parameters", "seed", "memo_key", "key_parts"):
        assert getattr(run, name) == getattr(spec, name), name
    for name in ("profile", "workflow_run_id", "prefect_flow_run_id", "prefect_task_run_id", "priority"):
        assert getattr(run, name) == getattr(spec, name), name
    assert (run.state, run.attempt, run.max_attempts, run.worker) == ("queued", 0, 5, None)
    assert not run.finished
    # Edges lead to what it uses from the moment it is queued.
    assert catalog.runs.inputs(run.id) == {"image": IMAGE}
    assert catalog.runs.weights(run.id) == {"transformer": an_artifact("w", "weights").digest}
    assert catalog.runs.used(run.id) == (catalog.runs.inputs(run.id), catalog.runs.weights(run.id))
    assert catalog.runs.outputs(run.id) == {}


def test_equal_keys_attach_while_the_run_is_under_way(catalog: Catalog) -> None:
    run = queue(catalog)
    for state in ("queued", "running"):
        again = catalog.runs.enqueue(a_spec(), present=present)
        assert (again.disposition, again.run.id, again.run.state) == ("attached", run.id, state)
        if state == "queued":
            claim(catalog)
    assert len(catalog.runs.list()) == 1
    assert queue(catalog, "another key").id != run.id


def test_attaching_raises_the_priority_and_never_lowers_it(catalog: Catalog) -> None:
    queue(catalog, priority=2)
    assert catalog.runs.enqueue(a_spec(priority=5), present=present).run.priority == 5
    assert catalog.runs.enqueue(a_spec(priority=1), present=present).run.priority == 5


def test_a_hit_needs_every_output(catalog: Catalog) -> None:
    done = make(catalog, "key", {"image": IMAGE, "latent": LATENT})
    asked: list[str] = []

    def only_the_image(ref: ArtifactRef) -> bool:
        asked.append(ref.digest)
        return ref == IMAGE

    hit = catalog.runs.enqueue(a_spec(), present=present)
    assert (hit.disposition, hit.run) == ("hit", done)
    miss = catalog.runs.enqueue(a_spec(), present=only_the_image)
    assert miss.disposition == "new"
    assert LATENT.digest in asked


def test_a_run_without_outputs_is_no_hit(catalog: Catalog) -> None:
    make(catalog, "key", {})
    assert catalog.runs.enqueue(a_spec(), present=present).disposition == "new"


@pytest.mark.parametrize("ending", ["failed", "cancelled"])
def test_an_unhappy_end_is_no_hit(catalog: Catalog, ending: str) -> None:
    run = queue(catalog)
    if ending == "failed":
        claim(catalog)
        catalog.runs.fail(run.id, "worker-a", {"type": "Oops"})
    else:
        catalog.runs.request_cancel(run.id)
    assert catalog.runs.get(run.id).state == ending
    again = catalog.runs.enqueue(a_spec(), present=present)
    assert (again.disposition, again.run.state) == ("new", "queued")


def test_without_a_key_nothing_is_shared(catalog: Catalog) -> None:
    first, second = queue(catalog, None), queue(catalog, None)
    assert first.id != second.id
    assert catalog.runs.enqueue(a_spec(None), present=present).disposition == "new"


def test_a_success_that_appears_during_the_question_is_judged_too(catalog: Catalog) -> None:
    make(catalog, "key", {"image": IMAGE})
    asked: list[str] = []

    def slow_store(ref: ArtifactRef) -> bool:
        # While the store is asked about the first success, a second one of the key has other bytes.
        asked.append(ref.digest)
        if len(asked) == 1:
            make(catalog, "key", {"image": LATENT}, worker="worker-b")
        return ref == LATENT

    enqueued = catalog.runs.enqueue(a_spec(), present=slow_store)
    assert enqueued.disposition == "hit"
    assert catalog.runs.outputs(enqueued.run.id) == {"image": LATENT}
    assert asked == [IMAGE.digest, IMAGE.digest, LATENT.digest]


def test_the_store_is_asked_outside_any_transaction(catalog: Catalog) -> None:
    make(catalog, "key", {"image": IMAGE})

    def writes_meanwhile(ref: ArtifactRef) -> bool:
        # Would wait for the write lock for ever if `enqueue` held it.
        catalog.artifacts.record(an_artifact("other"))
        return True

    assert catalog.runs.enqueue(a_spec(), present=writes_meanwhile).disposition == "hit"


def test_unknown_weights_are_refused_and_nothing_is_queued(catalog: Catalog) -> None:
    with pytest.raises(UnknownReference, match=r"weights:transformer is .* weights import"):
        catalog.runs.enqueue(a_spec(weights={"transformer": IMAGE.digest}), present=present)
    catalog.artifacts.record(IMAGE)
    clash = a_spec(inputs={"weights:vae": IMAGE}, weights={"vae": IMAGE.digest})
    with pytest.raises(InvalidParameter, match="weights:"):
        catalog.runs.enqueue(clash, present=present)
    assert catalog.runs.list() == []


def test_cancelling_a_queued_run_ends_it(catalog: Catalog) -> None:
    run = queue(catalog)
    cancelled = catalog.runs.request_cancel(run.id)
    assert (cancelled.state, cancelled.cancel_requested) == ("cancelled", True)
    assert cancelled.finished
    assert cancelled.finished_at is not None


def test_a_shared_run_is_cancelled_by_its_last_caller(catalog: Catalog) -> None:
    run = queue(catalog)
    catalog.runs.enqueue(a_spec(), present=present)
    assert catalog.runs.request_cancel(run.id).state == "queued"
    assert catalog.runs.request_cancel(run.id).state == "cancelled"


def test_force_cancels_whoever_else_waits(catalog: Catalog) -> None:
    run = queue(catalog)
    catalog.runs.enqueue(a_spec(), present=present)
    assert catalog.runs.request_cancel(run.id, force=True).state == "cancelled"


def test_cancelling_a_finished_run_changes_nothing(catalog: Catalog) -> None:
    done = make(catalog, "key", {"image": IMAGE})
    assert catalog.runs.request_cancel(done.id, force=True) == done


def test_runs_are_found_by_the_beginning_of_their_id(catalog: Catalog) -> None:
    first, second = queue(catalog, "a"), queue(catalog, "b")
    common = next(i for i in range(36) if first.id[i] != second.id[i])
    assert catalog.runs.find(first.id[: common + 1]) == first
    assert catalog.runs.find(second.id.upper()) == second
    with pytest.raises(AmbiguousReference, match=second.id):
        catalog.runs.find(first.id[:common])
    for missing in ("zzzz", "ffffffff", "0%", ""):
        with pytest.raises((UnknownReference, AmbiguousReference)):
            catalog.runs.find(missing)
    with pytest.raises(UnknownReference, match="mutoscope ls runs"):
        catalog.runs.get("0" * 36)


def test_lists_are_newest_first_and_narrowed(catalog: Catalog) -> None:
    workflow_run = catalog.workflows.start("text_to_image", {})
    done = make(catalog, "a", {"image": IMAGE})
    waiting = queue(catalog, "b", workflow_run_id=workflow_run)
    assert [run.id for run in catalog.runs.list()] == [waiting.id, done.id]
    assert catalog.runs.list(state="succeeded") == [done]
    assert catalog.runs.list(workflow_run_id=workflow_run) == [waiting]
    assert catalog.runs.list(memo_key=done.memo_key) == [done]
    assert catalog.runs.list(card="other") == catalog.runs.list(kind="import") == []
    assert len(catalog.runs.list(limit=1)) == 1
    assert catalog.runs.generated_by(IMAGE.digest) == [done]


def test_completed_work_is_recorded_with_its_edges(catalog: Catalog) -> None:
    catalog.artifacts.record(IMAGE)
    made = an_artifact("made", "weights")
    run = catalog.runs.record_completed(
        "train",
        card=CARD,
        parameters={"lr": 1e-3},
        used={"image": IMAGE.digest, "latent": LATENT},
        generated={"out": made},
    )
    assert (run.state, run.kind, run.parameters, run.memo_key) == ("succeeded", "train", {"lr": 1e-3}, None)
    assert str(run) == f"{CARD} train {run.id}"
    assert catalog.runs.inputs(run.id) == {"image": IMAGE, "latent": LATENT}
    assert catalog.runs.outputs(run.id) == {"out": made}


def test_completed_work_is_recorded_whole_or_not_at_all(catalog: Catalog) -> None:
    with pytest.raises(UnknownReference, match="image"):
        catalog.runs.record_completed("train", used={"image": IMAGE.digest}, generated={"out": LATENT})
    assert catalog.runs.list() == []
    assert catalog.artifacts.list() == []


def test_key_parts_stay_readable_without_our_code(catalog: Catalog) -> None:
    queue(catalog, key_parts={"seed": 7, "weights": {"vae": "abc"}})
    with catalog._database.read() as connection:
        stored = connection.execute(text("select cast(key_parts as text) from runs")).scalar_one()
    assert json.loads(stored) == {"seed": 7, "weights": {"vae": "abc"}}
    assert catalog.runs.enqueue(a_spec(), present=absent).disposition == "attached"
