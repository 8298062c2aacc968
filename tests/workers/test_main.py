"""The command line: configuration that cannot work is one line and exit code 2."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from mutoscope.platform import ids
from tests.support.forked import ForkedWorker
from tests.support.workshop import Workshop


def complaint(workshop: Workshop, *arguments: str, **environment: str) -> tuple[int | None, list[str]]:
    """Exit code and log lines of a worker that should not start."""
    log = workshop.settings.home / f"{ids.new_id()}.log"
    process = ForkedWorker(arguments, workshop.environment(environment), log)
    code = process.wait()
    return code, [line for line in log.read_text().splitlines() if line.startswith("error:")]


def test_an_unknown_card(workshop: Workshop) -> None:
    code, (line,) = complaint(workshop, "--card", "nonesuch")
    assert code == 2
    assert line.startswith("error: card 'nonesuch' is unknown: use one of ")
    assert "tiny-test" in line


def test_a_device_that_is_not_there(workshop: Workshop) -> None:
    code, lines = complaint(workshop, MUTOSCOPE_DEVICE="cuda", CUDA_VISIBLE_DEVICES="")
    assert (code, lines) == (
        2,
        ["error: device='cuda' is not valid: no CUDA device is visible to torch here; use cpu or auto"],
    )


def test_a_misspelt_fault_point(workshop: Workshop) -> None:
    code, (line,) = complaint(workshop, MUTOSCOPE_FAULT="worker.after_clam:kill")
    assert code == 2
    assert "worker.after_claim" in line


def test_a_store_that_is_not_writable(workshop: Workshop, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, (line,) = complaint(workshop, MUTOSCOPE_STORE_URL=f"file://{tmp_path}/file/store")
    assert code == 2
    assert "cannot be written" in line


def test_a_catalog_without_a_schema(workshop: Workshop, tmp_path: Path) -> None:
    code, (line,) = complaint(workshop, MUTOSCOPE_DATABASE_URL=f"sqlite:///{tmp_path}/empty.db")
    assert code == 1
    assert "has no schema" in line


def test_started_as_a_user_starts_it_and_without_an_orchestrator(workshop: Workshop) -> None:
    with workshop.worker(fresh=True) as worker:
        assert workshop.run(seed=1).state == "succeeded"
        assert "ready worker=" in worker.log
    probe = (
        "import sys, mutoscope.workers.__main__, mutoscope.workers.worker\n"
        "found = {m.split('.')[0] for m in sys.modules} & {'prefect', 'diffusers', 'fastapi'}\n"
        "sys.exit(', '.join(sorted(found)) or 0)"
    )
    environment = workshop.environment()
    done = subprocess.run(
        [sys.executable, "-c", probe], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
