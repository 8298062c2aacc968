"""Killing the worker or the flow, or having no worker at all, loses nothing."""

from __future__ import annotations

import os
import signal

import pytest

from tests.e2e.conftest import FirstVideo
from tests.e2e.stack import LEASE_SECONDS, Stack, finish, kill
from tests.support.deadline import until
from tests.support.frozen import frozen

pytestmark = pytest.mark.e2e

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
    assert stack.worker_pid() != victim
    assert {p.name: p.restarts for p in stack.record.processes}["worker-1"] >= 1


def test_a_killed_flow_leaves_its_run_to_complete_and_a_rerun_takes_it_from_memo(stack: Stack) -> None:
    arguments = ("run", "text_to_image", "prompt=a yellow square", "seed=102", LONG)
    with stack.begin(*arguments) as flow:
        run = stack.at_work(flow, "flux-t2i", seed=102)
        kill(flow)
    assert stack.finished(run.id).state == "succeeded"
    before = stack.run_count()
    again = stack.run(*arguments, "--json")
    assert again.json["outputs"]["image"]["digest"] == stack.catalog.runs.outputs(run.id)["image"].digest
    assert stack.run_count() == before


def test_without_a_worker_it_says_so_at_once_and_the_run_stays_queued(
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
    assert result.err.startswith(
        "error: card flux-t2i: no live worker serves it; start one with `mutoscope up`."
    )
    assert queued.id in result.err
    assert len(result.err.splitlines()) == 1
    failed = stack.flow_run(str(queued.prefect_flow_run_id))
    assert failed["state"]["message"] == result.err.removeprefix("error: ").rstrip("\n")
    assert stack.finished(queued.id).state == "succeeded", "taken as soon as the worker was back"
