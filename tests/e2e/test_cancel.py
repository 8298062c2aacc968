"""Cancelling: from the terminal, by id and from the Prefect UI, down to the engine run on the worker."""

from __future__ import annotations

import os
import signal

import pytest

from tests.e2e.stack import PATIENCE_S, Stack, finish
from tests.support.deadline import until
from tests.support.frozen import frozen

pytestmark = pytest.mark.e2e

LONG = "steps=900"


def test_ctrl_c_cancels_the_run_that_only_this_command_waits_for(stack: Stack) -> None:
    with stack.begin("run", "text_to_image", "prompt=a red square", "seed=111", LONG) as flow:
        run = stack.at_work(flow, "flux-t2i", seed=111)
        flow.send_signal(signal.SIGINT)
        result = finish(flow)
    assert result.code != 0
    assert stack.finished(run.id).state == "cancelled"
    row = stack.catalog.workflows.get(str(run.workflow_run_id))
    assert row.state == "cancelled"


@pytest.mark.long
def test_cancelling_in_the_prefect_ui_reaches_the_worker(stack: Stack) -> None:
    with stack.begin("run", "text_to_image", "prompt=a blue square", "seed=112", LONG, "--submit") as flow:
        run = stack.at_work(flow, "flux-t2i", seed=112)
        flow_run_id = str(run.prefect_flow_run_id)
        # The worker stands still: Prefect may take longer to pass the word on than the run has steps left.
        with frozen(stack.worker_pid(), stack.home / "catalog.db"):
            answer = stack.api(f"/flow_runs/{flow_run_id}/set_state", {"state": {"type": "CANCELLING"}})
            assert answer["status"] == "ACCEPT"
            until(
                lambda: stack.catalog.runs.get(run.id).cancel_requested,
                "the flow takes its run back",
                seconds=PATIENCE_S,
            )
        assert stack.finished(run.id).state == "cancelled"
        result = finish(flow)
    assert result.code != 0
    row = stack.catalog.workflows.get(str(run.workflow_run_id))
    assert row.state == "cancelled"
    until(
        lambda: stack.flow_run(flow_run_id)["state"]["type"] == "CANCELLED",
        "Prefect says so too",
        seconds=PATIENCE_S,
    )


@pytest.mark.long
def test_a_nested_workflow_is_cancelled_by_id_keeps_what_it_made_and_is_gone_on_with(stack: Stack) -> None:
    words = ("prompt=a yellow circle", "seed=113", "extensions=0", "video_steps=90")
    with stack.begin("run", "t2i_i2v_extend", *words, "--submit") as flow:
        run = stack.at_work(flow, "wan-i2v", seed=113)
        inner = stack.catalog.workflows.get(str(run.workflow_run_id))
        assert inner.parent_id is not None, "it runs inside another"
        # The worker stands still, or a busy machine would be done before the command has begun.
        with frozen(stack.worker_pid(), stack.home / "catalog.db"):
            told = stack.run("cancel", inner.parent_id, "--json").json
        result = finish(flow)
    assert (told["kind"], told["state"]) == ("workflow run", "cancelled")
    assert told["stopped"] == [inner.parent_id, inner.id]
    assert result.code == 1
    assert f"`mutoscope retry {inner.parent_id}`" in result.err
    cancelled = stack.finished(run.id)
    assert cancelled.state == "cancelled"
    (attempt,) = stack.catalog.runs.attempts(run.id)
    assert attempt.outcome == "cancelled"
    rows = [stack.catalog.workflows.get(each) for each in (inner.parent_id, inner.id)]
    assert [row.state for row in rows] == ["cancelled", "cancelled"]
    pid = int(str(rows[0].holder).rpartition(":")[2])
    until(lambda: not os.path.exists(f"/proc/{pid}"), "its process ends", seconds=PATIENCE_S)
    shown = stack.run("show", inner.id, "--json").json
    (picture,) = [ref for ref in shown["made"] if ref.startswith("image:")]
    assert stack.flow_run(str(rows[0].prefect_flow_run_id))["state"]["type"] == "CANCELLED"

    again = stack.run("retry", inner.parent_id, "--json")
    assert again.code == 0, f"{again.err}{stack.logs()}"
    fresh = stack.catalog.workflows.get(again.json["workflow_run"])
    (child,) = [
        row for row in stack.catalog.workflows.list(parent_id=fresh.id) if row.workflow == inner.workflow
    ]
    answers = stack.catalog.calls.asked(child.id)
    pictured = next(id_ for id_ in answers if stack.catalog.runs.get(id_).card == "flux-t2i")
    assert answers[pictured] == "hit", f"{picture} was not made again"
    refused = stack.run("cancel", fresh.id)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.endswith("has succeeded already: there is nothing to cancel\n")
