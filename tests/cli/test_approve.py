"""approve: what waits for a person, and what becomes of an answer. Resuming a flow run: tests/e2e."""

from __future__ import annotations

import json

import pytest

from mutoscope.platform.catalog import Catalog
from tests.cli.conftest import Command


@pytest.fixture
def run_id(catalog: Catalog) -> str:
    """A workflow run that no flow run is behind, and that asks."""
    made = catalog.workflows.start("test.film", {"prompt": "a red circle"})
    catalog.approvals.ask(made, "image", "Make the video?", [])
    return made


def test_what_waits_is_listed_and_told(run_id: str, mutoscope: Command) -> None:
    listed = mutoscope("approve")
    assert f"{run_id}  Make the video?" in listed.out
    shown = mutoscope("approve", run_id)
    assert "--yes or --no" in shown.out
    (plain,) = json.loads(mutoscope("approve", "--json").out)
    assert (plain["workflow_run"], plain["name"], plain["approved"]) == (run_id, "image", None)


def test_the_first_decision_stands_and_says_whose_it_is(
    run_id: str, catalog: Catalog, mutoscope: Command
) -> None:
    said = mutoscope("approve", run_id, "--no", "--by", "ada", "--note", "too dark")
    assert said.out == f"image of {run_id} was declined by ada (too dark)\n"
    (decided,) = catalog.approvals.of_run(run_id)
    assert (decided.approved, decided.decided_by, decided.note) == (False, "ada", "too dark")
    assert mutoscope("approve").out == "nothing waits for a person\n"
    assert mutoscope("approve", run_id, "--no").code == 0, "saying it again passes it on again"
    refused = mutoscope("approve", run_id, "--yes")
    assert (refused.code, refused.out) == (2, "")
    assert "was declined by ada (too dark) already, and the first decision stands" in refused.err


def test_of_several_questions_one_is_named(run_id: str, catalog: Catalog, mutoscope: Command) -> None:
    catalog.approvals.ask(run_id, "sound", "Keep the sound?", [])
    refused = mutoscope("approve", run_id, "--yes")
    assert refused.err == f"error: name=None is not valid: {run_id} asks image, sound: name one of them\n"
    assert mutoscope("approve", run_id, "--yes", "--name", "sound", "--by", "ada").code == 0
    assert mutoscope("approve", run_id, "--yes", "--by", "ada").code == 0, "only one is left"
    assert catalog.approvals.list() == []


def test_a_run_that_asks_nothing(catalog: Catalog, mutoscope: Command) -> None:
    silent = catalog.workflows.start("test.film", {})
    refused = mutoscope("approve", silent, "--yes")
    assert refused.code == 2
    assert "it asks nobody anything: `mutoscope approve` lists those that do" in refused.err
    assert mutoscope("approve", "ffff", "--yes").code == 2
