"""A running stack as a person has it: started, used and stopped through the `mutoscope` command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog, RunRecord
from mutoscope.platform.cli.api import get_json
from mutoscope.platform.cli.services import free_port
from mutoscope.platform.orchestration.stack import StackRecord, read_record
from tests.support.deadline import until

HOST = "127.0.0.1"
LEASE_SECONDS = 4.0
WORKER_PATIENCE_SECONDS = 8.0
PATIENCE_S = 600.0
"""Seconds until a command counts as hung; a choked machine may need minutes for what takes seconds."""

DRIVER = Path(__file__).with_name("driver.py")


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


@dataclass
class Stack:
    """One home and the stack on it.

    Attributes:
        within: makes a command line one that runs on the home's host.
    """

    home: Path
    extra: Mapping[str, str] = field(default_factory=dict)
    within: Callable[[Sequence[str]], list[str]] = list

    @property
    def environment(self) -> dict[str, str]:
        """The caller's, without what would lead to another home or server."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("MUTOSCOPE_", "PREFECT_"))}
        return {
            **clean,
            "MUTOSCOPE_HOME": str(self.home),
            "MUTOSCOPE_LEASE_SECONDS": str(LEASE_SECONDS),
            "MUTOSCOPE_HEARTBEAT_SECONDS": "1",
            "MUTOSCOPE_WORKER_PATIENCE_SECONDS": str(WORKER_PATIENCE_SECONDS),
            **self.extra,
        }

    def start(self, *arguments: str) -> None:
        """`mutoscope up --detach` on free ports."""
        ports = ("--port", str(free_port(HOST, 0)), "--web-port", str(free_port(HOST, 0)))
        result = self.run("up", "--detach", *ports, *arguments)
        assert result.code == 0, f"{result.out}{result.err}{self.logs()}"

    def stop(self) -> None:
        result = self.run("down")
        assert result.code == 0, f"{result.out}{result.err}{self.logs()}"

    def run(self, *arguments: str) -> Result:
        """Run a command to its end."""
        ran = subprocess.run(
            self.within(_command(arguments)),
            env=self.environment,
            capture_output=True,
            check=False,
            text=True,
            timeout=PATIENCE_S,
        )
        return Result(ran.returncode, ran.stdout, ran.stderr)

    def run_all(self, commands: Sequence[Sequence[str]]) -> list[Result]:
        """Run commands one after another in one process, which saves importing Prefect for each."""
        ran = subprocess.run(
            self.within([sys.executable, str(DRIVER)]),
            input=json.dumps([list(arguments) for arguments in commands]),
            env=self.environment,
            capture_output=True,
            check=False,
            text=True,
            timeout=PATIENCE_S,
        )
        assert ran.returncode == 0, ran.stderr
        return [Result(**one) for one in json.loads(ran.stdout)]

    @contextmanager
    def begin(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """A command under way. It leads a process group, which is killed whole if it outlives the block."""
        process = subprocess.Popen(
            self.within(_command(arguments)),
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                kill(process)

    @cached_property
    def catalog(self) -> Catalog:
        return Catalog.open(self.extra.get("MUTOSCOPE_DATABASE_URL", f"sqlite:///{self.home / 'catalog.db'}"))

    @cached_property
    def store(self) -> ArtifactStore:
        return ArtifactStore.open(self.extra.get("MUTOSCOPE_STORE_URL", f"file://{self.home / 'store'}"))

    @property
    def record(self) -> StackRecord:
        record = read_record(self.home)
        assert record is not None
        return record

    def api(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Ask the Prefect API: GET, or POST with a body."""
        auth = self.extra.get("MUTOSCOPE_PREFECT_AUTH")
        return get_json(f"{self.record.prefect_api_url}{path}", body=body, timeout=60.0, auth=auth)

    def flow_run(self, flow_run_id: str) -> Any:
        return self.api(f"/flow_runs/{flow_run_id}")

    def task_runs(self, flow_run_id: str) -> list[Any]:
        """A flow run's task runs, in the order they started."""
        query = {"flow_runs": {"id": {"any_": [flow_run_id]}}, "sort": "EXPECTED_START_TIME_ASC"}
        found: list[Any] = self.api("/task_runs/filter", query)
        return found

    def worker_pid(self) -> int:
        """Pid of the GPU worker that the stack runs now."""
        return until(
            lambda: next((p.pid for p in self.record.processes if p.name == "worker-1"), None),
            "a worker runs",
        )

    def at_work(self, flow: subprocess.Popen[str], card: str, seed: int) -> RunRecord:
        """The run of a card with that seed that a command asked for, once it has done a step and has steps
        left.
        """

        def look() -> RunRecord | None:
            if flow.poll() is not None:
                raise AssertionError(f"the command has ended: {finish(flow)}{self.logs()}")
            runs = self.catalog.runs.list(card=card, state="running", limit=10)
            return next((r for r in runs if r.seed == seed and r.step and r.total and r.step < r.total), None)

        return until(look, f"a run of {card} with seed {seed} is at work", seconds=PATIENCE_S)

    def finished(self, run_id: str) -> RunRecord:
        """The run, once it has ended."""

        def look() -> RunRecord | None:
            run = self.catalog.runs.get(run_id)
            return run if run.finished else None

        return until(look, f"run {run_id} has ended", seconds=PATIENCE_S)

    def run_count(self) -> int:
        """Engine runs ever queued."""
        return len(self.catalog.runs.list(kind="engine", limit=10_000))

    def logs(self) -> str:
        """The ends of all logs, for a failed assertion."""
        files = sorted((self.home / "logs").glob("*.log"))
        return "".join(f"\n--- {f.name}\n" + "\n".join(f.read_text().splitlines()[-15:]) for f in files)


def kill(process: subprocess.Popen[str]) -> None:
    """SIGKILL to a command and whatever it started."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)


def finish(process: subprocess.Popen[str]) -> Result:
    """Wait for a command begun with `begin`."""
    out, err = process.communicate(timeout=PATIENCE_S)
    return Result(process.returncode, out, err)


def _command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "mutoscope.platform.cli.main", *arguments]
