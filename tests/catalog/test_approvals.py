"""What workflows ask of people: asked once, decided once, on both databases."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from mutoscope.platform.catalog import Catalog


def test_a_question_is_asked_once_and_the_first_decision_stands(any_catalog: Catalog) -> None:
    run_id = any_catalog.workflows.start("test.film", {})
    asked = any_catalog.approvals.ask(run_id, "image", "Make the video?", ["ab" * 32])
    assert (asked.approved, asked.decided_by, asked.subjects) == (None, None, ["ab" * 32])
    assert any_catalog.approvals.ask(run_id, "image", "Really?", []) == asked, (
        "the next attempt asks the same"
    )
    assert any_catalog.approvals.list() == [asked]
    decided = any_catalog.approvals.decide(run_id, "image", False, "ada", "too dark")
    assert (decided.approved, decided.decided_by, decided.note) == (False, "ada", "too dark")
    assert decided.decided_at is not None
    assert any_catalog.approvals.decide(run_id, "image", True, "bob") == decided
    assert any_catalog.approvals.ask(run_id, "image", "Make the video?", []) == decided
    assert any_catalog.approvals.list() == []
    assert any_catalog.approvals.list(every=True) == any_catalog.approvals.of_run(run_id) == [decided]
    assert any_catalog.approvals.get(run_id, "sound") is None


def test_of_many_who_decide_at_once_one_does(any_catalog: Catalog) -> None:
    run_id = any_catalog.workflows.start("test.film", {})
    any_catalog.approvals.ask(run_id, "image", "Make the video?", [])
    with ThreadPoolExecutor(8) as threads:
        answers = list(
            threads.map(
                lambda n: any_catalog.approvals.decide(run_id, "image", n % 2 == 0, f"person {n}"), range(8)
            )
        )
    assert len({(answer.approved, answer.decided_by) for answer in answers}) == 1
