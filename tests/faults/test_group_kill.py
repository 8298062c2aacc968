"""Killing a rank of a group: the group ends, says so, and its run goes on elsewhere."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.deadline import until
from tests.support.ranks import ranks
from tests.support.workshop import Workshop


@pytest.mark.parametrize("dead", [0, 1])
def test_a_group_ends_with_any_of_its_ranks_and_its_run_goes_on_elsewhere(
    workshop: Workshop, tmp_path: Path, dead: int
) -> None:
    gate = tmp_path / "gate"
    with ranks(workshop) as group:
        run = workshop.enqueue(seed=1, num_inference_steps=4, gate=str(gate), gate_step=1).run
        until(gate.with_name("gate.reached").exists, "the run at its gate, where both ranks wait")
        group[dead].signal(signal.SIGKILL)
        group[dead].wait_exit()
        gate.touch()
        survivor = group[1 - dead]
        assert survivor.wait_exit() == 1
        (line,) = [line for line in survivor.log.splitlines() if line.startswith("error:")]
        assert f"rank {1 - dead} of 2 has lost another rank of its group" in line
    with workshop.worker() as healthy:
        done = workshop.wait(run.id)
    assert (done.state, done.worker) == ("succeeded", healthy.id)
    assert done.attempt == (2 if dead == 0 else 1), "rank 0 hands back; what it holds when it dies, its lease"
    outcomes = [attempt.outcome for attempt in workshop.catalog.runs.attempts(run.id)]
    assert outcomes == (["expired"] if dead == 0 else ["released"])
