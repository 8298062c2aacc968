"""A machine of a site: a home of its own, the services that its supervisor keeps up, and its network link."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from mutoscope.platform.cli.supervisor import Child, Service, Supervisor
from tests.support.deadline import until
from tests.support.link import Link

START_S = 300.0
"""Seconds until a host that does not come up counts as broken; two cores start a dozen interpreters."""


@dataclass
class Host:
    """One machine. Its supervisor restarts what dies, as `mutoscope up` does.

    Attributes:
        link: its way to the servers; None for the machine that they run on.
    """

    name: str
    home: Path
    environment: Mapping[str, str]
    services: Sequence[Service]
    link: Link | None = None
    lines: list[str] = field(default_factory=list)
    _supervisor: Supervisor | None = None
    _watching: threading.Thread | None = None

    def start(self) -> None:
        """Start every service and wait until all are ready."""
        self.begin()
        self.wait_ready()

    def begin(self) -> None:
        """Start every service; several hosts come up side by side."""
        self._supervisor = Supervisor(self.home / "logs", self.lines.append)
        for service in self.services:
            self._supervisor.start(service)

    def wait_ready(self) -> None:
        """Wait for what `begin` started, and watch it from then on."""
        supervisor = self.supervisor
        supervisor.wait_ready(supervisor.children)
        self._watching = threading.Thread(
            target=supervisor.watch, name=f"supervisor-{self.name}", daemon=True
        )
        self._watching.start()

    @property
    def supervisor(self) -> Supervisor:
        assert self._supervisor is not None, f"host {self.name} is not started"
        return self._supervisor

    def child(self, name: str) -> Child:
        return next(child for child in self.supervisor.children if child.name == name)

    def pid(self, name: str) -> int:
        """Pid of a service's process, once it runs."""

        def look() -> int | None:
            process = self.child(name).process
            return process.pid if process is not None and process.poll() is None else None

        return until(look, f"{name} runs on {self.name}", seconds=START_S)

    def kill(self, name: str) -> int:
        """SIGKILL to a service's process, and to nothing else; returns its pid once it is gone."""
        pid = self.pid(name)
        process = psutil.Process(pid)
        os.kill(pid, signal.SIGKILL)
        until(
            lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE, f"death of {name}"
        )
        return pid

    def flows(self) -> list[psutil.Process]:
        """Processes in which submitted flows run: whatever the flow pool started."""
        return psutil.Process(self.pid("flow-pool")).children(recursive=True)

    def processes(self) -> list[psutil.Process]:
        """Everything that runs on it."""
        found = []
        for child in self.supervisor.children:
            if child.process is not None and child.process.poll() is None:
                with contextlib.suppress(psutil.NoSuchProcess):
                    own = psutil.Process(child.process.pid)
                    found += [own, *own.children(recursive=True)]
        return found

    def stop(self) -> None:
        """A clean end: flows first, then the workers that they wait for."""
        self._unwatch()
        self.supervisor.stop()

    def crash(self) -> None:
        """As if the power failed: every process of it is gone at once."""
        self._unwatch()
        doomed = self.processes()
        for process in doomed:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        for child in self.supervisor.children:
            if child.process is not None:
                child.process.wait()
        psutil.wait_procs(doomed)

    def _unwatch(self) -> None:
        self.supervisor.stopping.set()
        if self._watching is not None:
            self._watching.join()
            self._watching = None

    def logs(self) -> str:
        """The ends of all logs, for a failed assertion."""
        files = sorted((self.home / "logs").glob("*.log"))
        ends = (
            f"\n--- {self.name}/{f.name}\n" + "\n".join(f.read_text(errors="replace").splitlines()[-20:])
            for f in files
        )
        return "".join(ends) + f"\n--- {self.name}\n" + "\n".join(self.lines)
