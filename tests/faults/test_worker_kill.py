"""Killing a worker at any moment: nothing recorded is lost, nothing is counted twice, the run goes on
elsewhere.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.deadline import until
from tests.support.workshop import Workshop

AT_EVERY_POINT = (
    # (point, attempt that succeeds): only a kill after the commit leaves nothing to repeat.
    ("worker.after_claim", 2),
    ("worker.step", 2),
    ("worker.before_put", 2),
    ("worker.after_put", 2),
    ("worker.after_succeed", 1),
)


@pytest.mark.parametrize(("point", "attempt"), AT_EVERY_POINT)
def test_killed_at_a_named_point(workshop: Workshop, tmp_path: Path, point: str, attempt: int) -> None:
    marker = tmp_path / "fired"
    with workshop.worker(MUTOSCOPE_FAULT=f"{point}:kill", MUTOSCOPE_FAULT_MARKER=str(marker)) as worker:
        run = workshop.enqueue(seed=7).run
        assert worker.wait_exit() == -signal.SIGKILL
    assert marker.read_text() == f"{point}\n", "the fault must have fired"

    with workshop.worker():
        done = workshop.wait(run.id)
        clean = workshop.run(seed=7, shared=False)

    assert (done.state, done.attempt) == ("succeeded", attempt)
    outputs = workshop.catalog.runs.outputs(run.id)
    assert outputs == workshop.catalog.runs.outputs(clean.id), "what an undisturbed run makes"
    assert set(outputs) == {"image", "latent"}
    for ref in outputs.values():
        assert len(workshop.store.get(ref.digest)) == ref.size
        assert [r.id for r in workshop.catalog.runs.generated_by(ref.digest)] == [run.id, clean.id]


def test_killed_mid_run_and_taken_over_by_another_process(workshop: Workshop, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with workshop.worker() as first:
        run = workshop.enqueue(seed=1, num_inference_steps=4, gate=str(gate), gate_step=2).run
        until(gate.with_name("gate.reached").exists, "the run at its third step")
        assert workshop.catalog.runs.get(run.id).attempt == 1
        first.signal(signal.SIGKILL)
        assert first.wait_exit() == -signal.SIGKILL
    assert workshop.catalog.runs.get(run.id).state == "running", "nobody has told the catalog"

    gate.touch()
    with workshop.worker() as second:
        done = workshop.wait(run.id)
        assert (done.state, done.attempt) == ("succeeded", 2)
        assert done.worker == second.id


def test_a_queued_run_outlives_every_worker(workshop: Workshop) -> None:
    run = workshop.enqueue(seed=3).run
    with workshop.worker(MUTOSCOPE_FAULT="worker.after_claim:kill") as worker:
        worker.wait_exit()
    equal = workshop.enqueue(seed=3)
    assert (equal.disposition, equal.run.id) == ("attached", run.id), "single-flight holds across the death"
    with workshop.worker():
        assert workshop.wait(run.id).state == "succeeded"
    assert workshop.enqueue(seed=3).disposition == "hit"


def test_a_run_that_kills_its_worker_is_given_up(workshop: Workshop) -> None:
    poison = workshop.enqueue(seed=5, trouble="kill").run
    for attempt in (1, 2):
        with workshop.worker() as worker:
            assert worker.wait_exit() == -signal.SIGKILL
        assert workshop.catalog.runs.get(poison.id).attempt == attempt
    with workshop.worker():
        given_up = workshop.wait(poison.id)
        assert given_up.state == "failed"
        assert given_up.error is not None
        assert "went silent in attempt 2" in given_up.error["message"]
        assert workshop.run(seed=6).state == "succeeded", "the worker that found it is unharmed"
