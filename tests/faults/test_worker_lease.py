"""A worker that falls silent without dying: its late result must not be counted."""

from __future__ import annotations

from pathlib import Path

from tests.support.deadline import until
from tests.support.frozen import frozen
from tests.support.workshop import Workshop


def test_the_result_of_a_lost_lease_is_discarded(workshop: Workshop, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with workshop.worker() as late:
        run = workshop.enqueue(seed=1, gate=str(gate)).run
        until(gate.with_name("gate.reached").exists, "the run in its first step")
        with workshop.worker() as healthy:
            with frozen(late.pid, workshop.settings.home / "catalog.db"):
                gate.touch()
                done = workshop.wait(run.id)
            assert (done.state, done.attempt, done.worker) == ("succeeded", 2, healthy.id)
            until(lambda: "discarded run=" in late.log, "the late worker noticing")
        assert workshop.catalog.runs.get(run.id) == done, "its rows are untouched"
        for ref in workshop.catalog.runs.outputs(run.id).values():
            assert [r.id for r in workshop.catalog.runs.generated_by(ref.digest)] == [run.id]

        after = workshop.run(seed=2)
        assert after.state == "succeeded", "the late worker serves on"


def test_a_long_step_keeps_its_lease(workshop: Workshop, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with workshop.worker(), workshop.worker():
        run = workshop.enqueue(seed=1, gate=str(gate)).run
        until(gate.with_name("gate.reached").exists, "the run in its first step")
        first = workshop.catalog.runs.get(run.id)
        assert first.lease_expires_at is not None
        # Well past the first lease: only the heartbeat thread can have renewed it, the main thread is in the
        # step.
        beyond = first.lease_expires_at + workshop.settings.lease_seconds
        until(lambda: (workshop.catalog.runs.get(run.id).lease_expires_at or 0) > beyond, "renewals")
        gate.touch()
        done = workshop.wait(run.id)
    assert (done.state, done.attempt, done.worker) == ("succeeded", 1, first.worker)
