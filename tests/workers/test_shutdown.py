"""How a worker ends."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.support.deadline import until
from tests.support.workshop import WorkerProcess, Workshop


def hold(workshop: Workshop, gate: Path) -> str:
    """A run that waits in its second step of four until `gate` exists."""
    run = workshop.enqueue(seed=1, num_inference_steps=4, gate=str(gate), gate_step=1).run
    until(gate.with_name(f"{gate.name}.reached").exists, "the run at its gate")
    return run.id


def log_says(worker: WorkerProcess, text: str) -> None:
    until(lambda: text in worker.log, f"{text!r} in the log of the worker")


def test_sigterm_finishes_what_runs_and_claims_nothing_more(workshop: Workshop, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with workshop.worker() as worker:
        running = hold(workshop, gate)
        worker.signal(signal.SIGTERM)
        waiting = workshop.enqueue(seed=2).run.id
        gate.touch()
        assert worker.wait_exit() == 0
    assert workshop.catalog.runs.get(running).state == "succeeded"
    assert workshop.catalog.runs.get(waiting).state == "queued"
    assert worker.state() == "stopped"
    assert workshop.catalog.workers.alive() == []


def test_past_the_deadline_a_run_is_handed_back(workshop: Workshop, tmp_path: Path) -> None:
    with workshop.worker("--drain-seconds", "0.1") as worker:
        run = workshop.enqueue(seed=1, num_inference_steps=10**9).run
        until(lambda: workshop.catalog.runs.get(run.id).step, "the run under way")
        worker.signal(signal.SIGTERM)
        assert worker.wait_exit() == 0
    back = workshop.catalog.runs.get(run.id)
    assert (back.state, back.attempt, back.worker) == ("queued", 0, None), "it does not count as an attempt"


def test_a_second_signal_hands_back_at_once(workshop: Workshop) -> None:
    with workshop.worker("--drain-seconds", "3600") as worker:
        run = workshop.enqueue(seed=1, num_inference_steps=10**9).run
        until(lambda: workshop.catalog.runs.get(run.id).step, "the run under way")
        worker.signal(signal.SIGTERM)
        log_says(worker, "draining runs=1")
        worker.signal(signal.SIGINT)
        assert worker.wait_exit() == 0
    assert workshop.catalog.runs.get(run.id).state == "queued"


def test_a_worker_without_work_ends_if_told_so(workshop: Workshop) -> None:
    with workshop.worker("--idle-exit", "0.1") as worker:
        assert worker.wait_exit() == 0
        assert worker.state() == "stopped"


def test_a_defect_hands_back_and_exits_with_a_traceback(workshop: Workshop) -> None:
    with workshop.worker(MUTOSCOPE_FAULT="worker.step:raise") as worker:
        run = workshop.enqueue(seed=1).run
        assert worker.wait_exit() == 1
        assert "InjectedError: fault injected at worker.step" in worker.log
    assert workshop.catalog.runs.get(run.id).state == "queued"
    assert worker.state() == "stopped"
