"""The environment with the peers' packages, and the processes that drive one store each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from types import TracebackType
from typing import Any, Self

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "peers.txt"
ENVIRONMENT = HERE.parents[1] / "build" / "bench-peers"


def requirements() -> dict[str, str]:
    """Package to pinned requirement, as `peers.txt` lists them."""
    lines = (line.strip() for line in REQUIREMENTS.read_text().splitlines())
    return {line.partition("==")[0]: line for line in lines if line and not line.startswith("#")}


def install() -> dict[str, str | None]:
    """Make the environment, or bring it up to date; each package with the reason why it is missing, if it is.

    One package at a time: what does not install must not take the others along.
    """
    python = interpreter()
    if not python.exists():
        venv.create(ENVIRONMENT, with_pip=True)
    outcome: dict[str, str | None] = {}
    for package, requirement in requirements().items():
        done = subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        outcome[package] = None if done.returncode == 0 else _last_line(done.stderr)
    return outcome


def interpreter() -> Path:
    return ENVIRONMENT / "bin" / "python"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


class StoreFailedError(Exception):
    """A store's process ended; the message is the last line it wrote."""


class StoreProcess:
    """A process serving one store (`store_process`), alive from round to round."""

    def __init__(self, name: str, python: Path | None = None) -> None:
        self.name = name
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed by __exit__
        with tempfile.TemporaryDirectory(prefix="mutoscope-bench-home-") as home:
            # Peers read settings of the user, and some write them: not those of whoever measures.
            self._process = subprocess.Popen(
                [python or sys.executable, HERE / "store_process.py", name],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
                env={**os.environ, "HOME": home, "METAFLOW_HOME": home, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Run one command; its figures. Raises StoreFailedError."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            self._process.wait()
            self._log.seek(0)
            raise StoreFailedError(f"{self.name}, {do}: {_last_line(self._log.read())}")
        figures: dict[str, Any] = json.loads(answer)
        return figures

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
        self._log.close()
