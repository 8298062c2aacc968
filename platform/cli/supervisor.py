"""Child processes: start, wait until ready, restart when they die, stop in order.

One thread, no asyncio: a `Supervisor` is a list of children and a loop that looks at each a few times a
second. Each child leads its own process group, so a terminal's Ctrl-C reaches only the supervisor, which then
drains in order, and a child that must be killed takes its own children along.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Literal

import psutil

from mutoscope.platform.errors import MutoscopeError
from mutoscope.platform.orchestration.stack import ProcessRecord

LOOK_SECONDS = 0.1
BACKOFF_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
STEADY_SECONDS = 60.0
"""A child that lived this long has recovered: its next death starts the backoff anew."""


class StackFailed(MutoscopeError):  # named as the tree in errors.py names them
    """A process of the stack did not come up."""


@dataclass(frozen=True, slots=True)
class Service:
    """A process to run.

    Attributes:
        ready: asked with the child's pid until it says True.
        ready_seconds: how long it may take to become ready before the start counts as failed. Generous: what
            cannot start usually ends, and a choked machine is no failure.
        drain_seconds: how long it may take to end after SIGTERM before it is killed.
        team: services of one team are asked to stop together, so that they drain side by side.
        once: it does one job and ends; ready means it ended well.
        attempts: times a job is begun before its failure counts; a busy server may refuse it at first.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    ready: Callable[[int], bool]
    ready_seconds: float = 600.0
    drain_seconds: float = 20.0
    team: str = ""
    once: bool = False
    attempts: int = 1


@dataclass(slots=True)
class Child:
    """A service's process, present or past."""

    service: Service
    log: Path
    process: subprocess.Popen[bytes] | None = None
    created: float = 0.0
    started: float = 0.0
    restarts: int = 0
    failures: int = 0
    due: float | None = None
    state: Literal["starting", "ready", "waiting", "done"] = "starting"

    @property
    def name(self) -> str:
        return self.service.name

    def record(self) -> ProcessRecord | None:
        if self.process is None or self.process.poll() is not None:
            return None
        return ProcessRecord(self.name, self.process.pid, self.created, str(self.log), self.restarts)


@dataclass(slots=True)
class Supervisor:
    """Runs services until told to stop.

    Attributes:
        say: where lines for people go.
        changed: called after each start or death, so that the stack's record stays true.
    """

    logs: Path
    say: Callable[[str], None]
    changed: Callable[[], None] = lambda: None
    children: list[Child] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)

    def start(self, service: Service) -> Child:
        """Start a service; `wait_ready` tells when it is of use."""
        child = Child(service, self.logs / f"{service.name}.log")
        self.children.append(child)
        self._spawn(child)
        return child

    def records(self) -> tuple[ProcessRecord, ...]:
        return tuple(record for child in self.children if (record := child.record()))

    def wait_ready(self, wanted: Sequence[Child]) -> None:
        """Block until the wanted children are ready, reporting every child that gets there meanwhile.

        Raises:
            StackFailed: any child ended early or took too long; names its log and the log's last line.
        """
        while not self.stopping.is_set():
            for child in self.children:
                if child.state == "waiting":
                    self._look(child)
                elif child.state == "starting" and self._became_ready(child):
                    self.say(f"{child.name:<14} ready after {time.monotonic() - child.started:.1f} s")
            if all(child.state in ("ready", "done") for child in wanted):
                return
            self.stopping.wait(LOOK_SECONDS)

    def watch(self) -> None:
        """Restart what dies, until `stopping` is set."""
        while not self.stopping.wait(LOOK_SECONDS):
            for child in self.children:
                self._look(child)

    def stop(self) -> None:
        """Stop all children, the last started first, each within its drain time."""
        self.stopping.set()
        running = [child for child in reversed(self.children) if child.record()]
        for _, team in groupby(running, key=lambda child: child.service.team or child.name):
            self._stop_team(list(team))
        self.changed()

    def _stop_team(self, team: Sequence[Child]) -> None:
        began = time.monotonic()
        for child in team:
            assert child.process is not None
            child.process.terminate()
        for child in team:
            assert child.process is not None
            left = max(0.0, began + child.service.drain_seconds - time.monotonic())
            stop_group(child.process.pid, left, wait=child.process.wait, asked=True)
            self.say(f"{child.name:<14} stopped")

    def _spawn(self, child: Child) -> None:
        self.logs.mkdir(parents=True, exist_ok=True)
        with child.log.open("ab") as log:
            child.process = subprocess.Popen(
                list(child.service.command),
                env={**os.environ, **child.service.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        child.created = psutil.Process(child.process.pid).create_time()
        child.started = time.monotonic()
        child.state, child.due = "starting", None
        self.changed()

    def _became_ready(self, child: Child) -> bool:
        assert child.process is not None
        code = child.process.poll()
        if child.service.once and code == 0:
            child.state = "done"
            return True
        if code is not None and child.service.once and child.failures + 1 < child.service.attempts:
            self._died(child, code)
            return False
        if code is not None:
            raise StackFailed(
                f"{child.name} ended with {describe_exit(code)} before it was ready: "
                f"{last_line(child.log)} (log: {child.log})"
            )
        if not child.service.once and child.service.ready(child.process.pid):
            child.state = "ready"
            return True
        if time.monotonic() - child.started > child.service.ready_seconds:
            raise StackFailed(
                f"{child.name} was not ready after {child.service.ready_seconds:.0f} s: "
                f"{last_line(child.log)} (log: {child.log})"
            )
        return False

    def _look(self, child: Child) -> None:
        if child.state == "done" or child.process is None:
            return
        if child.state == "waiting":
            if child.due is not None and time.monotonic() >= child.due:
                child.restarts += 1
                self._spawn(child)
            return
        code = child.process.poll()
        if code is not None:
            self._died(child, code)
        elif child.state == "starting" and child.service.ready(child.process.pid):
            child.state = "ready"
            self.say(f"{child.name:<14} ready again after {time.monotonic() - child.started:.1f} s")

    def _died(self, child: Child, code: int) -> None:
        if time.monotonic() - child.started > STEADY_SECONDS:
            child.failures = 0
        delay = BACKOFF_SECONDS[min(child.failures, len(BACKOFF_SECONDS) - 1)]
        child.failures += 1
        child.state, child.due = "waiting", time.monotonic() + delay
        self.say(f"{child.name:<14} died ({describe_exit(code)}): again in {delay:g} s (log: {child.log})")
        self.changed()


def describe_exit(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def last_line(log: Path) -> str:
    """The last line of a log that says something."""
    try:
        lines = log.read_text(errors="replace").splitlines()[-50:]
    except OSError:
        return "it left no log"
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")


def is_alive(record: ProcessRecord) -> bool:
    """Whether that very process still runs; a later process with the same pid does not count."""
    try:
        process = psutil.Process(record.pid)
        same = abs(process.create_time() - record.created) < 1.0
        return bool(same and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def stop_group(
    pid: int, seconds: float, *, wait: Callable[[float], object] | None = None, asked: bool = False
) -> None:
    """SIGTERM to the leader, wait, then SIGKILL to whatever is left of its group.

    Args:
        asked: the leader has had its SIGTERM; a second one may mean something else to it.
    """
    waiter = wait or (lambda timeout: psutil.Process(pid).wait(timeout))
    try:
        if not asked:
            os.kill(pid, signal.SIGTERM)
        waiter(seconds)
    except (ProcessLookupError, psutil.NoSuchProcess):
        pass
    except (subprocess.TimeoutExpired, psutil.TimeoutExpired):
        pass
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    try:
        waiter(5.0)
    except (psutil.NoSuchProcess, psutil.TimeoutExpired, subprocess.TimeoutExpired):
        return
