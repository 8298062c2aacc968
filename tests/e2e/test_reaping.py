"""A flow process that dies: on the pool its run starts again by itself, elsewhere its record is closed and a
command goes on with it."""

from __future__ import annotations

import os
import signal

import pytest

from mutoscope.platform.catalog import RunRecord, WorkflowRecord
from tests.e2e.stack import PATIENCE_S, Stack, finish, kill
from tests.support.deadline import until

pytestmark = [pytest.mark.e2e, pytest.mark.long]

LONG = "video_steps=60"
"""Long enough to be caught at work."""


def arguments(seed: int, *more: str) -> list[str]:
    return ["run", "text_to_video", "prompt=a green circle", f"seed={seed}", LONG, "--json", *more]


def row_of(stack: Stack, run: RunRecord) -> WorkflowRecord:
    return stack.catalog.workflows.get(str(run.workflow_run_id))


def ended(stack: Stack, row: WorkflowRecord) -> WorkflowRecord:
    def look() -> WorkflowRecord | None:
        now = stack.catalog.workflows.get(row.id)
        return None if now.state == "running" else now

    return until(look, f"workflow run {row.id} has ended", seconds=PATIENCE_S)


def asked(stack: Stack, row: WorkflowRecord) -> dict[str, RunRecord]:
    """The runs of a workflow run by card."""
    runs = stack.catalog.runs.get_many(stack.catalog.calls.asked(row.id))
    return {str(run.card): run for run in runs.values()}


@pytest.mark.parametrize(
    ("number", "attempt", "seed"),
    [
        pytest.param(signal.SIGKILL, 2, 121, id="killed"),
        # As a pool that shuts down ends it: the run is handed back, which is no attempt.
        pytest.param(signal.SIGTERM, 1, 123, id="told to end"),
    ],
)
def test_a_flow_process_of_the_pool_that_ends_is_replaced_and_nothing_repeated(
    stack: Stack, number: signal.Signals, attempt: int, seed: int
) -> None:
    with stack.begin(*arguments(seed, "--submit")) as flow:
        run = stack.at_work(flow, "wan-i2v", seed=seed)
        row = row_of(stack, run)
        before = asked(stack, row)
        pid = int(str(row.holder).rpartition(":")[2])
        os.kill(pid, number)
        result = finish(flow)
    assert result.code == 0, f"{result.err}{stack.logs()}"
    done = stack.catalog.workflows.get(row.id)
    assert (done.state, done.attempt) == ("succeeded", attempt)
    assert done.holder != row.holder, "by another process"
    after = asked(stack, done)
    assert {card: each.id for card, each in after.items()} == {card: each.id for card, each in before.items()}
    assert [each.attempt for each in after.values()] == [1, 1], "neither was computed twice"
    # The pool may have told of the first process's death after the second had begun; the end counts.
    until(
        lambda: stack.flow_run(str(done.prefect_flow_run_id))["state"]["type"] == "COMPLETED",
        "Prefect shows the end",
        seconds=PATIENCE_S,
    )
    assert stack.flow_run(str(done.prefect_flow_run_id))["run_count"] == 2


def test_a_killed_command_is_found_out_and_retry_goes_on_with_it(stack: Stack) -> None:
    with stack.begin(*arguments(122)) as flow:
        run = stack.at_work(flow, "wan-i2v", seed=122)
        kill(flow)
    row = ended(stack, row_of(stack, run))
    assert row.state == "crashed"
    assert row.error is not None
    assert row.error["message"].endswith(f"`mutoscope retry {row.id}`, from what it made")
    until(
        lambda: stack.flow_run(str(row.prefect_flow_run_id))["state"]["type"] == "CRASHED",
        "Prefect follows",
        seconds=PATIENCE_S,
    )
    assert stack.finished(run.id).state == "succeeded", "the run itself went on"
    before = stack.run_count()
    again = stack.run("retry", row.id, "--json").json
    assert again["workflow_run"] != row.id
    made = stack.catalog.runs.outputs(run.id)["video"]
    assert again["outputs"]["video"]["digest"] == made.digest
    assert stack.run_count() == before
