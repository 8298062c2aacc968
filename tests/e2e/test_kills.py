"""Killing the worker, or having none at all, loses nothing. What a killed flow leaves: see `test_reaping`."""

from __future__ import annotations

import os
import signal

import pytest

from tests.e2e.conftest import FirstVideo
from tests.e2e.stack import LEASE_SECONDS, WORKER_PATIENCE_SECONDS, Stack, finish
from tests.support.deadline import until
from tests.support.frozen import frozen

pytestmark = [pytest.mark.e2e, pytest.mark.long]

LONG = "steps=120"
"""Long enough to be caught at work."""


def test_a_killed_worker_is_replaced_and_the_flow_completes(stack: Stack) -> None:
    with stack.begin("run", "text_to_image", "prompt=a green triangle", "seed=101", LONG, "--json") as flow:
        run = stack.at_work(flow, "flux-t2i", seed=101)
        victim = stack.worker_pid()
        os.kill(victim, signal.SIGKILL)
        result = finish(flow)
    assert result.code == 0, f"{result.err}{stack.logs()}"
    taken_again = stack.catalog.runs.get(run.id)
    assert (taken_again.state, taken_again.attempt) == ("succeeded", 2)
    assert taken_again.worker != run.worker
    (lost,) = stack.catalog.runs.attempts(run.id)
    assert (lost.attempt, lost.outcome, lost.worker) == (1, "expired", run.worker), "what is left on record"
    assert stack.worker_pid() != victim
    assert {p.name: p.restarts for p in stack.record.processes}["worker-1"] >= 1


def test_without_a_worker_it_waits_a_moment_then_says_so_and_the_run_stays_queued(
    stack: Stack, first_video: FirstVideo
) -> None:
    """The worker is stopped in its tracks rather than ended, since the stack would replace it."""
    with frozen(stack.worker_pid(), stack.home / "catalog.db"):
        until(
            lambda: not stack.catalog.workers.alive(within_seconds=LEASE_SECONDS), "the worker counts as gone"
        )
        result = stack.run("run", "text_to_image", "prompt=a blue circle", "seed=103")
        (queued,) = [run for run in stack.catalog.runs.list(state="queued") if run.seed == 103]
    assert (result.code, result.out.split()) == (2, ["flux-t2i", "queued"])
    missing = "card flux-t2i: no live worker serves it; start one with `mutoscope up`."
    # Where the command took longer to start than a worker is waited for, nothing is left to wait.
    *waiting, error = result.err.splitlines()
    patient = f"waiting up to {WORKER_PATIENCE_SECONDS:g} s for a worker: {missing}"
    assert len(waiting) <= 1
    assert all(line.startswith(patient) for line in waiting)
    assert error.startswith(f"error: {missing}")
    assert queued.id in error
    failed = stack.flow_run(str(queued.prefect_flow_run_id))
    assert failed["state"]["message"] == error.removeprefix("error: ")
    assert stack.finished(queued.id).state == "succeeded", "taken as soon as the worker was back"
