"""Calls: each time a run is asked for, who asked and what the memo answered; on both databases."""

from __future__ import annotations

from mutoscope.platform.catalog import Catalog, PassedOver
from mutoscope.platform.refs import ArtifactRef
from tests.support.records import a_spec, absent, an_artifact, claim, make, present, queue

IMAGE, LATENT = an_artifact("image"), an_artifact("latent", "latent")


def test_every_answer_is_noted_with_who_asked(any_catalog: Catalog) -> None:
    catalog = any_catalog
    first, second, third = (catalog.workflows.start("image.tiny", {"n": n}) for n in range(3))
    run = queue(catalog, "key", workflow_run_id=first)
    catalog.runs.enqueue(a_spec("key", workflow_run_id=second), present=present)
    claim(catalog)
    catalog.runs.succeed(run.id, "worker-a", {"image": IMAGE}, {})
    catalog.runs.enqueue(a_spec("key", workflow_run_id=third), present=present)
    catalog.runs.enqueue(a_spec("key"), present=present)
    told = [(call.workflow_run_id, call.disposition) for call in catalog.calls.of_run(run.id)]
    assert told == [(first, "new"), (second, "attached"), (third, "hit"), (None, "hit")]
    assert catalog.calls.counts(run.id) == {"new": 1, "attached": 1, "hit": 2}
    assert [call.run_id for call in catalog.calls.of_workflow(third)] == [run.id]
    assert catalog.calls.of_run(run.id, limit=1)[0].workflow_run_id == first


def test_what_a_workflow_asked_for_is_complete_and_in_order(any_catalog: Catalog) -> None:
    catalog = any_catalog
    earlier = make(catalog, "earlier", {"image": IMAGE})
    workflow = catalog.workflows.start("image.tiny", {})
    computed = make(catalog, "own", {"latent": LATENT}, workflow_run_id=workflow)
    for key in ("earlier", "own"):
        asked = catalog.runs.enqueue(a_spec(key, workflow_run_id=workflow), present=present)
        assert asked.disposition == "hit"
    recorded = catalog.runs.record_completed("train", generated={"image": IMAGE}, workflow_run_id=workflow)
    assert list(catalog.calls.asked(workflow).items()) == [
        (computed.id, "new"),
        (earlier.id, "hit"),
        (recorded.id, "new"),
    ]


def test_a_success_that_did_not_answer_is_noted_with_the_reason(any_catalog: Catalog) -> None:
    catalog = any_catalog
    two = make(catalog, "two", {"image": IMAGE, "latent": LATENT})
    empty = make(catalog, "empty", {})

    def only_the_image(ref: ArtifactRef) -> bool:
        return ref == IMAGE

    over = {}
    for name, key, holds in (
        ("gone", "two", only_the_image),
        ("empty", "empty", present),
        ("first", "new", absent),
    ):
        run = catalog.runs.enqueue(a_spec(key), present=holds).run
        over[name] = catalog.calls.of_run(run.id)[0].passed_over
        catalog.runs.request_cancel(run.id)
    replay = catalog.runs.enqueue(a_spec("two"), present=None).run
    assert catalog.calls.of_run(replay.id)[0].passed_over == PassedOver(two.id, "replay")
    assert over == {
        "gone": PassedOver(two.id, "absent", (LATENT.digest,)),
        "empty": PassedOver(empty.id, "empty"),
        "first": None,
    }


def test_a_refused_request_is_no_call(any_catalog: Catalog) -> None:
    import contextlib

    from mutoscope.platform.errors import UnknownReference

    with contextlib.suppress(UnknownReference):
        any_catalog.runs.enqueue(a_spec(weights={"net": IMAGE.digest}), present=present)
    with any_catalog._database.read() as connection:
        assert connection.exec_driver_sql("select count(*) from calls").scalar() == 0
