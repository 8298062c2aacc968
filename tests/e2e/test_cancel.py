"""Cancelling: from the terminal and from the Prefect UI, down to the engine run on the worker."""

from __future__ import annotations

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
