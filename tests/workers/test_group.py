"""A worker of two ranks: it returns what one process returns."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mutoscope.models.registry import get_card
from mutoscope.platform.artifacts import codecs
from mutoscope.platform.engine import numerics
from mutoscope.platform.engine.calibration import calibrate
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import load_instance
from mutoscope.platform.engine.request import Request
from mutoscope.platform.orchestration.importing import import_folder
from mutoscope.platform.orchestration.plan import plan_run
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.workers.group import Group
from tests.support.cards import tiny_folder
from tests.support.deadline import until
from tests.support.ranks import ranks
from tests.support.servers import free_ports
from tests.support.workshop import Workshop

CARD = "flux-t2i"
GIVEN = {"prompt": "a red circle", "guidance_scale": 3.0, "num_inference_steps": 3}
"""Guided: a step has two rows, and four requests that share calls have eight."""


@pytest.mark.slow
def test_a_group_returns_what_one_process_returns(workshop: Workshop, tmp_path: Path) -> None:
    folder = tiny_folder(CARD, tmp_path / CARD)
    import_folder(workshop.catalog, workshop.store, get_card(CARD), folder)
    runtime = Runtime(workshop.settings, workshop.catalog, workshop.store)
    log = tmp_path / "group.log"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    torchrun += ["--master-addr", "127.0.0.1", "--master-port", str(free_ports(1)[0])]
    command = [*torchrun, "-m", "mutoscope.workers", "--card", CARD, "--idle-exit", "3600"]
    with log.open("wb") as stream:
        process = subprocess.Popen(command, env=workshop.environment(), stdout=stream, stderr=stream)
    try:
        until(lambda: "ready worker=" in log.read_text() or process.poll() is not None, "the group ready")
        specs = [plan_run(runtime, CARD, GIVEN, seed=seed) for seed in range(4)]
        queued = [workshop.catalog.runs.enqueue(spec, present=workshop.store.contains) for spec in specs]
        runs = [workshop.wait(each.run.id) for each in queued]
        process.send_signal(signal.SIGTERM)
        until(lambda: process.poll() is not None, "the end of the group")
    finally:
        process.kill()
        process.wait()
    assert [run.state for run in runs] == ["succeeded"] * 4, log.read_text()
    assert "following rank=1 of=2" in log.read_text()
    assert "stopped rank=1" in log.read_text(), "it ends because rank 0 says so"

    numerics.configure_torch(numerics.cpu_contract(1))
    weights = {name: version.digest for name, version in workshop.catalog.weights.live(CARD).items()}
    instance = load_instance(get_card(CARD), folder, weights=weights)
    alone = calibrate(instance, most=workshop.settings.batch_rows).prepare(instance)
    for seed, run in enumerate(runs):
        expected = Engine().run(alone, Request(str(seed), CARD, {}, run.parameters, seed)).outputs["image"]
        ref = workshop.catalog.runs.outputs(run.id)["image"]
        found = codecs.decode(ref.kind, workshop.store.get(ref.digest), ref.media_type)
        np.testing.assert_array_equal(found, expected.value)


def test_ranks_that_would_compute_different_things_do_not_start(workshop: Workshop) -> None:
    with ranks(workshop, MUTOSCOPE_THREADS="2") as group:
        for rank in group:
            assert rank.wait_exit() == 2
            (line,) = [line for line in rank.log.splitlines() if line.startswith("error:")]
            assert "start all ranks alike" in line
    assert workshop.catalog.workers.list() == []


def test_an_error_fails_its_run_on_all_ranks_and_the_group_serves_on(workshop: Workshop) -> None:
    with ranks(workshop) as group:
        failed = workshop.run(seed=2, trouble="error", trouble_step=1)
        assert failed.error is not None
        assert failed.error["message"] == "RuntimeError: the matrix is singular"
        assert workshop.run(seed=2).state == "succeeded"
        group[0].signal(signal.SIGTERM)
        assert [rank.wait_exit() for rank in group] == [0, 0]


def test_a_process_that_was_started_alone_is_no_group() -> None:
    assert Group.join({}) is None
    assert Group.join({"WORLD_SIZE": "1", "RANK": "0"}) is None
