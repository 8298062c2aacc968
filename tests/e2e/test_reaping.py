"""A flow process that dies is marked by Prefect's automation, and its record is closed by the reaper."""

from __future__ import annotations

import pytest

from tests.e2e.stack import Stack, kill
from tests.support.deadline import until

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

STATED_S = 90 + 2 * 30
"""Three missed heartbeats, and a round of Prefect's services and of the pool at each end."""
CHOKED = 4
"""How much longer a machine may take that has other things to do."""


def test_what_a_killed_flow_leaves_open_is_closed_within_the_stated_time(stack: Stack) -> None:
    with stack.begin("run", "text_to_image", "prompt=a green circle", "seed=121", "steps=200") as flow:
        run = stack.at_work(flow, "flux-t2i", seed=121)
        kill(flow)
    row_id, flow_run_id = str(run.workflow_run_id), str(run.prefect_flow_run_id)
    assert stack.finished(run.id).state == "succeeded"
    until(
        lambda: stack.flow_run(flow_run_id)["state"]["type"] == "CRASHED",
        "Prefect marks the flow run",
        seconds=CHOKED * STATED_S,
        every=1.0,
    )
    until(
        lambda: stack.catalog.workflows.get(row_id).state == "crashed",
        "the reaper closes the row",
        seconds=CHOKED * STATED_S,
        every=1.0,
    )
    error = stack.catalog.workflows.get(row_id).error
    assert error is not None
    assert error["type"] == "ProcessDied"
