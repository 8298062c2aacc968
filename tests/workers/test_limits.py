"""How long a run may take, and how many are at work at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mutoscope.platform.catalog import RunRecord
from tests.support.deadline import until
from tests.support.workshop import WorkerProcess, Workshop


def limited(workshop: Workshop, seconds: float, **wanted: object) -> RunRecord:
    """A queued run with a time limit, and attempts to spare."""
    spec = replace(workshop.spec(**wanted), time_limit_seconds=seconds, max_attempts=3)
    return workshop.catalog.runs.enqueue(spec, present=workshop.store.contains).run


def test_a_run_that_takes_too_long_is_stopped_and_not_tried_again(
    shared: Workshop, serving: WorkerProcess
) -> None:
    neighbour = shared.enqueue(seed=71, num_inference_steps=500).run.id
    run = shared.wait(limited(shared, 0.2, seed=70, num_inference_steps=10**9).id)
    assert (run.state, run.attempt) == ("failed", 1)
    assert run.error is not None
    assert run.error["type"] == "TimeLimitExceeded"
    assert run.error["message"].startswith("time limit of 0.2 s is over after ")
    assert (
        f"at denoise, step {run.error['message'].split('step ')[1].split()[0]} of 1000000000"
        in (run.error["message"])
    )
    (attempt,) = shared.catalog.runs.attempts(run.id)
    assert (attempt.attempt, attempt.outcome) == (1, "timed_out")
    assert shared.wait(neighbour).state == "succeeded"
    assert shared.catalog.runs.outputs(run.id) == {}


def test_a_run_within_its_limit_ends_as_any_other(shared: Workshop, serving: WorkerProcess) -> None:
    run = shared.wait(limited(shared, 600.0, seed=72).id)
    assert (run.state, run.error) == ("succeeded", None)


def test_as_many_runs_are_at_work_as_a_shared_call_has_rows(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path / "home", batch_rows=4)
    gate = tmp_path / "gate"
    queued = [workshop.enqueue(seed=seed, gate=str(gate), num_inference_steps=1).run.id for seed in range(6)]
    with workshop.worker():
        until(gate.with_name("gate.reached").exists, "the first run at its gate")
        states = [workshop.catalog.runs.get(run_id).state for run_id in queued]
        assert states == ["running"] * 4 + ["queued"] * 2, "one claim took all it had places for"
        gate.touch()
        assert {workshop.wait(run_id).state for run_id in queued} == {"succeeded"}
    workshop.close()
