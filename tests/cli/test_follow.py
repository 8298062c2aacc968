"""Progress lines."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from mutoscope.platform.catalog import RunRecord
from mutoscope.platform.cli.follow import Bars, Lines, doing

_EMPTY: dict[str, Any] = {field.name: None for field in fields(RunRecord)}
QUEUED = RunRecord(
    **(_EMPTY | {"id": "0192c7f0", "kind": "engine", "card": "flux-t2i", "state": "queued", "attempt": 0})
)
RUNNING = replace(QUEUED, state="running", attempt=1, stage="denoise", step=3, total=20)


def test_words_say_where_the_run_is() -> None:
    assert doing(QUEUED) == "queued"
    assert doing(RUNNING) == "denoise"
    assert doing(replace(RUNNING, attempt=2)) == "denoise (attempt 2)"
    assert doing(replace(RUNNING, state="failed")) == "failed"


def test_lines_come_with_a_new_state_or_stage_and_not_with_each_step() -> None:
    said: list[str] = []
    with Lines(said.append) as watch:
        for step in range(20):
            watch(replace(RUNNING, step=step))
        watch(replace(RUNNING, stage="decode", step=20))
        watch(replace(RUNNING, state="succeeded", step=20))
    assert said == ["flux-t2i     denoise", "flux-t2i     decode", "flux-t2i     succeeded"]


def test_a_run_that_others_had_done_before_came_from_the_memo() -> None:
    said: list[str] = []
    with Lines(said.append) as watch:
        watch.opened("mine")
        watch(replace(QUEUED, state="succeeded", workflow_run_id="earlier"))
    assert said == ["flux-t2i     cached"]


def test_a_run_that_was_too_quick_to_be_seen_at_work_did_not() -> None:
    said: list[str] = []
    with Lines(said.append) as watch:
        watch.opened("mine")
        watch(replace(QUEUED, state="succeeded", workflow_run_id="mine"))
    assert said == ["flux-t2i     succeeded"]


def test_a_run_shared_with_another_workflow_is_shown_at_work() -> None:
    said: list[str] = []
    with Lines(said.append) as watch:
        watch.opened("mine")
        for run in (RUNNING, replace(RUNNING, state="succeeded")):
            watch(replace(run, workflow_run_id="theirs"))
    assert said == ["flux-t2i     denoise", "flux-t2i     succeeded"]


def test_bars_take_every_record() -> None:
    with Bars() as watch:
        for run in (QUEUED, RUNNING, replace(RUNNING, state="succeeded")):
            watch(run)
        (task,) = watch._progress.tasks
        assert (task.completed, task.total) == (20, 20)
