"""replay: the record's run again, past the memo, digest by digest. The worker is a fake one on the near-empty
card.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mutoscope.platform.catalog import RunRecord
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.orchestration.submit import Outcome, submit_run
from mutoscope.platform.refs import ArtifactRef
from tests.cli.conftest import Command
from tests.orchestration.conftest import RECIPE
from tests.support.fake_worker import FakeWorker, paint, publish_weights
from tests.support.platform import cards_registered, platform_in
from tests.support.tinycard.card import CARD


@pytest.fixture
def runtime(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    home.mkdir()
    with cards_registered(monkeypatch, "tests.support.tinycard.card:CARD"), platform_in(home) as opened:
        publish_weights(opened, CARD, RECIPE)
        yield opened


def make(**given: object) -> Outcome:
    return asyncio.run(submit_run(CARD.id, seed=7, **given))


def image_of(outcome: Outcome) -> ArtifactRef:
    return next(ref for ref in outcome.outputs.values() if ref.kind == "image")


def test_equal_bytes_are_reported_equal(runtime: Runtime, mutoscope: Command) -> None:
    with FakeWorker(runtime, (CARD.id,)).serving() as worker:
        made = make()
        result = mutoscope("replay", str(image_of(made)))
    assert (result.code, result.err) == (0, "")
    assert f"equal   {image_of(made)}" in result.out
    assert len(worker.done) == 2, "the memo did not answer"
    assert made.run.id in result.out
    assert worker.done[1] in result.out


def test_other_bytes_are_an_incident_and_exit_code_1(runtime: Runtime, mutoscope: Command) -> None:
    def perform(runtime: Runtime, run: RunRecord) -> dict[str, ArtifactRef]:
        outputs = paint(runtime, run)
        if len(worker.done) == 1:
            outputs["image"] = runtime.store.put(b"other", kind="image", media_type="image/png")
        return outputs

    with FakeWorker(runtime, (CARD.id,), perform).serving() as worker:
        made = make()
        result = mutoscope("replay", made.run.id, "--json")
    (replayed,) = json.loads(result.out)
    assert result.code == 1
    assert (replayed["equal"], replayed["differing"]) == (False, ["image"])
    assert replayed["outputs"]["image"]["recorded"] == made.outputs["image"].digest
    (incident,) = runtime.catalog.incidents.list()
    assert (incident.earlier_run_id, incident.run_id) == (made.run.id, worker.done[1])


def test_without_a_worker_it_says_so_at_once(runtime: Runtime, mutoscope: Command) -> None:
    with FakeWorker(runtime, (CARD.id,)).serving():
        made = make()
    result = mutoscope("replay", str(image_of(made)))
    assert result.code == 2
    assert "no live worker" in result.err
    assert len(result.err.splitlines()) == 1


def test_what_no_card_made_cannot_be_replayed(runtime: Runtime, mutoscope: Command) -> None:
    ref = runtime.store.put(b"x", kind="image", media_type="image/png")
    runtime.catalog.runs.record_completed("import", generated={"image": ref})
    result = mutoscope("replay", str(ref))
    assert result.code == 2
    assert result.err == f"error: {ref} came from an import run: replay an artifact that a card made\n"


def test_chain_replays_upstream_first(runtime: Runtime, mutoscope: Command) -> None:
    with FakeWorker(runtime, (CARD.id,)).serving() as worker:
        first = make()
        second = make(image=image_of(first))
        third = make(image=image_of(second))
        result = mutoscope("replay", str(image_of(third)), "--chain", "--json")
    replays = json.loads(result.out)
    assert (result.code, [one["equal"] for one in replays]) == (0, [True, True, True])
    assert [one["original"] for one in replays] == [first.run.id, second.run.id, third.run.id]
    assert worker.done[3:] == [one["replay"] for one in replays]
