"""Killed anywhere, a training goes on as if nothing had happened: what it notes is equal bit for bit.

Two homes hold the same tiny weights. In one nothing happens; in the other flow and worker are killed.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from mutoscope.flows.rl.configuration import TrainingConfiguration
from mutoscope.flows.rl.training import train
from mutoscope.platform.training import notes
from tests.support.deadline import until
from tests.support.trainings import School, lesson

NAME = "taught"
LEASES = {"lease_seconds": 2.0, "heartbeat_seconds": 0.5}


@pytest.fixture
def undisturbed(tmp_path: Path) -> Iterator[School]:
    yield from _opened(tmp_path / "undisturbed")


@pytest.fixture
def disturbed(tmp_path: Path) -> Iterator[School]:
    yield from _opened(tmp_path / "disturbed")


def _opened(home: Path) -> Iterator[School]:
    school = School(home, **LEASES)
    yield school
    school.close()


def course(school: School) -> dict[str, Mapping[int, Mapping[str, Any]]]:
    """All that a training noted, apart from how long it took."""
    return {title: school.noted(NAME, title) for title in (notes.ITERATION, notes.EVALUATION, notes.HALT)}


def versions(school: School) -> list[tuple[str, str, Any]]:
    return [(str(one), one.digest, one.metrics) for one in school.catalog.weights.list("flux-t2i")]


@pytest.mark.long
async def test_flow_and_worker_die_in_an_iteration_and_the_rest_is_equal(
    undisturbed: School, disturbed: School
) -> None:
    asked = lesson(iterations=2)
    with undisturbed.teaching():
        whole = await train(NAME, asked)
    with disturbed.teaching() as worker:
        going = asyncio.create_task(train(NAME, asked))
        await asyncio.to_thread(until, lambda: _samples(disturbed) >= 8, "the second iteration samples")
        worker.process.kill()
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)
        assert list(disturbed.noted(NAME, notes.ITERATION)) == [0]
    with disturbed.teaching():
        resumed = await train(NAME, asked)
    assert (resumed.heads, resumed.best) == (whole.heads, whole.best)
    assert course(disturbed) == course(undisturbed)
    assert versions(disturbed) == versions(undisturbed)


def _samples(school: School) -> int:
    """Rollouts that are done: an iteration of `lesson` has six."""
    done = school.catalog.runs.list(card="flux-t2i", state="succeeded", limit=1000)
    return sum(run.profile == "rollout" for run in done)


def _done(school: School) -> int:
    """Runs that have succeeded."""
    return school.catalog.runs.counts().get("succeeded", 0)


@pytest.mark.slow
def test_twenty_steps_with_kills_of_flow_and_worker_anywhere(undisturbed: School, disturbed: School) -> None:
    asked = lesson(iterations=20, evaluation={"every": 5, "seeds": [1, 2]})
    with undisturbed.teaching():
        asyncio.run(train(NAME, asked))
    draw = random.Random(20)
    kills = 0
    while len(disturbed.noted(NAME, notes.ITERATION)) < 20:
        with disturbed.teaching() as worker:
            flow = _flow(disturbed, asked)
            # Some iterations on, anywhere in one: each is fifteen runs.
            enough = _done(disturbed) + draw.randint(20, 70)
            until(
                lambda flow=flow, enough=enough: flow.poll() is not None or _done(disturbed) >= enough,
                "runs",
                seconds=1800,
            )
            if flow.poll() is None:
                for pid in draw.choice(((flow.pid,), (worker.pid,), (flow.pid, worker.pid))):
                    os.kill(pid, signal.SIGKILL)
                kills += 1
            flow.kill()
            flow.wait()
    with disturbed.teaching():
        asyncio.run(train(NAME, asked))
    assert kills >= 3
    assert course(disturbed) == course(undisturbed)
    assert versions(disturbed) == versions(undisturbed)


def _flow(school: School, asked: TrainingConfiguration) -> subprocess.Popen[bytes]:
    """The training in a process of its own."""
    environment = {**school.environment(), "MUTOSCOPE_RUN_PAGES": "false"}
    command = [sys.executable, "-m", "tests.support.train_process", NAME, asked.model_dump_json()]
    return subprocess.Popen(command, env=environment, cwd=Path(__file__).parents[2])
