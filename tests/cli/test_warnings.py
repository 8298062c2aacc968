"""Warnings of a run, wherever a person or a program reads about it."""

from __future__ import annotations

import json

import pytest

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog, WorkflowRecord
from mutoscope.platform.cli.home import Home
from mutoscope.platform.cli.run import report
from tests.cli.conftest import Command
from tests.support.records import claim, queue

CUT = "prompt: 93 tokens, of which clip takes 77: the last 16 were cut"


def made(catalog: Catalog, store: ArtifactStore, *warnings: str) -> tuple[str, WorkflowRecord]:
    """A workflow run whose one engine run ended with these warnings."""
    ref = store.put(b"pixels", kind="image", media_type="image/png")
    workflow = catalog.workflows.start("test.make", {"seed": 7})
    run = queue(catalog, workflow_run_id=workflow)
    claim(catalog)
    catalog.runs.succeed(run.id, "worker-a", {"image": ref}, warnings=warnings)
    catalog.workflows.finish(workflow, "succeeded", outputs={"image": ref})
    return run.id, catalog.workflows.get(workflow)


def test_the_command_that_ran_it_tells(
    catalog: Catalog, store: ArtifactStore, capsys: pytest.CaptureFixture[str]
) -> None:
    run_id, workflow = made(catalog, store, CUT)
    report(Home(), workflow, 1.0)
    assert f"note         toy-card: {CUT}\n" in capsys.readouterr().out
    report(Home(), workflow, 1.0, json=True)
    told = json.loads(capsys.readouterr().out)["warnings"]
    assert told == [{"run": run_id, "card": "toy-card", "warning": CUT}]


def test_a_run_that_has_nothing_to_say_adds_no_line(
    catalog: Catalog, store: ArtifactStore, capsys: pytest.CaptureFixture[str]
) -> None:
    _, workflow = made(catalog, store)
    report(Home(), workflow, 1.0)
    assert "note" not in capsys.readouterr().out
    report(Home(), workflow, 1.0, json=True)
    assert json.loads(capsys.readouterr().out)["warnings"] == []


def test_show_tells(catalog: Catalog, store: ArtifactStore, mutoscope: Command) -> None:
    run_id, _ = made(catalog, store, CUT)
    assert CUT in mutoscope("show", run_id).out
    assert json.loads(mutoscope("show", run_id, "--json").out)["warnings"] == [CUT]
