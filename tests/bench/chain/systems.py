"""The systems of `bench_chain`: how each is installed and started, and what its documentation promises."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parents[2] / "build" / "bench-chain"


@dataclass(frozen=True)
class System:
    """One way to run the chain.

    Attributes:
        package: its requirement's name; None for what the project's own environment has.
        lineage: what it records of where an artifact came from, in words; "" if nothing that outlives a run.
        durability: what a power cut may cost, as its defaults are.
        again: whether running the chain again reuses what was computed.
    """

    name: str
    script: str
    package: str | None
    lineage: str
    durability: str
    arguments: tuple[str, ...] = ()
    again: bool = True
    needs_server: bool = False

    @property
    def interpreter(self) -> Path:
        return Path(sys.executable) if self.package is None else ENVIRONMENTS / self.package / "bin/python"

    @cached_property
    def version(self) -> str:
        """Of its package, as installed."""
        question = f"from importlib.metadata import version; print(version({self.package or 'prefect'!r}))"
        done = subprocess.run([self.interpreter, "-c", question], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def environment(self, home: Path) -> dict[str, str]:
        """What keeps all of its files in `home`, and its calls on this machine."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PREFECT_", "MUTOSCOPE_", "DAGSTER_", "METAFLOW_", "REDUN_"))
        }
        return {
            **kept,
            "HOME": str(home),
            "USERNAME": "bench",
            "DO_NOT_TRACK": "1",
            "OMP_NUM_THREADS": "1",
            "DAGSTER_HOME": str(home),
            "DAGSTER_DISABLE_TELEMETRY": "1",
            "METAFLOW_HOME": str(home),
            "METAFLOW_DATASTORE_SYSROOT_LOCAL": str(home),
            "METAFLOW_DEFAULT_DATASTORE": "local",
            "METAFLOW_DEFAULT_METADATA": "local",
            "PREFECT_HOME": str(home / "prefect"),
            "PREFECT_LOCAL_STORAGE_PATH": str(home / "results"),
            "PREFECT_LOGGING_LEVEL": "ERROR",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_SERVER_EPHEMERAL_ENABLED": "0",
        }


_OF_OURS = "artifacts, runs and the edges between them, by digest, across runs and workflows"
_OF_REDUN = "call graph and values, by hash, across runs"
_OF_DAGSTER = "data versions of assets and of what they came from, by run"
_OF_METAFLOW = "artifacts by task, tasks by run, parents of tasks"
_POWER = "a power cut may cost the last moments (no fsync per step)"

SYSTEMS = (
    System("ours", "run_ours.py", None, _OF_OURS, _POWER),
    System("ours in a workflow", "run_ours.py", None, _OF_OURS, _POWER, ("prefect",), needs_server=True),
    # Its task runs name those before them within one flow run; results have no record of their own.
    System("prefect", "run_prefect.py", None, "", _POWER, needs_server=True),
    System("redun", "run_redun.py", "redun", _OF_REDUN, "none: an fsync per commit"),
    System("dagster", "run_dagster.py", "dagster", _OF_DAGSTER, _POWER, again=False),
    System("metaflow", "run_metaflow.py", "metaflow", _OF_METAFLOW, _POWER),
)


def install() -> dict[str, str | None]:
    """Make the environments that are not there yet; each package with why it is missing, if it is."""
    outcome: dict[str, str | None] = {}
    for line in (HERE / "requirements.txt").read_text().splitlines():
        requirement = line.strip()
        if not requirement or requirement.startswith("#"):
            continue
        package = requirement.partition("==")[0]
        folder, outcome[package] = ENVIRONMENTS / package, None
        stamp = folder / "installed"
        if stamp.exists() and stamp.read_text() == requirement:
            continue
        if not (folder / "bin/python").exists():
            venv.create(folder, with_pip=True)
        command = [folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        done = subprocess.run([*command, requirement], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            stamp.write_text(requirement)
        else:
            outcome[package] = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return outcome


class SystemFailedError(Exception):
    """A system's process ended; the message is the end of what it wrote."""


class Driver:
    """A system's process, which runs chains until it is closed or killed.

    Args:
        home: the folder of all its files.
        extra: variables besides `System.environment`.
    """

    def __init__(self, system: System, home: Path, extra: Mapping[str, str]) -> None:
        self.system = system
        home.mkdir(parents=True, exist_ok=True)
        self._log = home / "log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [system.interpreter, HERE / system.script, *system.arguments],
                cwd=home, env={**system.environment(home), **extra},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        self._answer()

    def run(self, seed: int, steps: int) -> float:
        """Seconds that a chain takes."""
        self.begin(seed, steps)
        return self.end()

    def begin(self, seed: int, steps: int) -> None:
        """Start a chain without waiting for its end."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": "run", "seed": seed, "steps": steps}) + "\n")
        self._process.stdin.flush()

    def end(self) -> float:
        """Wait for the chain that was begun; its seconds."""
        answer = self._answer()
        assert answer["right"], f"{self.system.name} made something else"
        return float(answer["seconds"])

    def processes(self) -> int:
        """How many processes it has, at rest."""
        return 1 + len(psutil.Process(self._process.pid).children(recursive=True))

    def kill(self) -> None:
        """SIGKILL to all its processes at once."""
        parent = psutil.Process(self._process.pid)
        family = [parent, *parent.children(recursive=True)]
        for process in family:
            process.send_signal(signal.SIGKILL)
        psutil.wait_procs(family)
        self._process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            tail = self._log.read_text(errors="replace")[-2000:]
            raise SystemFailedError(f"{self.system.name} ended with {self._process.returncode}:\n{tail}")
        return dict(json.loads(line))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
