"""`mutoscope up`: from a folder to a running stack, and back.

Order matters twice. Starting: the Prefect server is slowest, so it starts first; the home is prepared
(schema, store, starter weights) meanwhile, and whatever needs the server imports its own code and waits for
it. Stopping: flows first, then the workers they wait for, then the servers both talk to.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType

import psutil

from mutoscope.platform.cli import roles, services, starter
from mutoscope.platform.cli.home import Home
from mutoscope.platform.cli.supervisor import Child, Supervisor, is_alive, stop_group
from mutoscope.platform.errors import InvalidInput, InvalidParameter
from mutoscope.platform.orchestration import stack
from mutoscope.platform.orchestration.stack import StackRecord

REGISTRATION_SECONDS = 15.0
"""A worker row counts as this start's if its heartbeat is no older."""


class AlreadyRunning(InvalidInput):
    """Another `up` holds the home."""


@dataclass(frozen=True, slots=True)
class Options:
    """What `up` was asked for; None means the settings' default, or any free port where that one is taken.

    Attributes:
        cards: what the workers serve; all of them when empty.
    """

    roles: tuple[str, ...] = roles.ROLES
    workers: int = 1
    cards: tuple[str, ...] = ()
    port: int | None = None
    web_port: int | None = None


@contextmanager
def exclusive(home: Path) -> Iterator[None]:
    """Hold the home's lock; the kernel frees it when the holder dies, however it dies.

    Raises:
        AlreadyRunning: somebody holds it.
    """
    home.mkdir(parents=True, exist_ok=True)
    with (home / "up.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(
                f"a stack is already running on {home}: see `mutoscope status`, or use `mutoscope down`"
            ) from None
        yield


def is_held(home: Path) -> bool:
    """Whether a live `up` holds the home."""
    if not (home / "up.lock").exists():
        return False
    try:
        with exclusive(home):
            return False
    except AlreadyRunning:
        return True


def sweep(home: Path, say: Callable[[str], None], *, seconds: float = 5.0) -> None:
    """Stop what a killed `up` left running, within `seconds` each. The caller holds the home's lock."""
    record = stack.read_record(home)
    orphans = [process for process in record.processes if is_alive(process)] if record else []
    if orphans:
        say(f"stopping {len(orphans)} processes that an earlier stack left behind")
    for process in reversed(orphans):
        stop_group(process.pid, seconds)
    stack.remove_record(home)


@dataclass(slots=True)
class Boot:
    """One `up` from start to stop."""

    home: Home
    options: Options
    say: Callable[[str], None]
    record: StackRecord = field(init=False)
    supervisor: Supervisor = field(init=False)
    _ports: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        settings = self.home.settings
        port = _port(settings.host, self.options.port, settings.prefect_port, "port")
        web_port = _port(settings.host, self.options.web_port, settings.web_port, "web-port")
        found = roles.addresses(self.options.roles, settings, port, web_port)
        self.record = StackRecord(
            state="starting",
            pid=os.getpid(),
            created=psutil.Process().create_time(),
            started_at=time.time(),
            prefect_api_url=found.prefect_api_url,
            prefect_ui_url=found.prefect_ui_url,
            web_url=found.web_url,
        )
        self.supervisor = Supervisor(services.log_folder(self.home.path), self.say, self._write)
        self._ports = port, web_port

    def run(self) -> None:
        """Start everything, watch it until a signal arrives, drain."""
        with exclusive(self.home.path):
            sweep(self.home.path, self.say)
            starter.check_home(self.home)
            starter.check_cards(self.options.cards)
            if roles.SERVER not in self.options.roles:
                starter.check_prepared(self.home)
            self._handle_signals()
            started = time.monotonic()
            try:
                self._start()
                if not self.supervisor.stopping.is_set():
                    self._set_state("ready")
                    self._announce(time.monotonic() - started)
                self.supervisor.watch()
            finally:
                self._set_state("stopping")
                self.supervisor.stop()
                stack.remove_record(self.home.path)

    def _start(self) -> None:
        wanted, supervisor = self.options.roles, self.supervisor
        environment = stack.environment(self.home.path, self.record.prefect_api_url, self.record.web_url)
        if roles.SERVER in wanted:
            supervisor.start(services.prefect_server(self.home.settings.host, self._ports[0], environment))
            starter.prepare(self.home, self.say)
        if roles.GATEWAY in wanted:
            supervisor.start(services.gateway(self.home.settings.host, self._ports[1], environment))
        if roles.WORKERS in wanted:
            for number in range(1, self.options.workers + 1):
                supervisor.start(
                    services.gpu_worker(number, environment, self._registered, self.options.cards)
                )
        if roles.FLOWS in wanted:
            supervisor.start(services.deployments(environment))
            supervisor.start(services.flow_pool(f"{socket.gethostname()}-{os.getpid()}", environment))
        if roles.RECONCILER in wanted:
            supervisor.start(services.reconciler(environment))
        supervisor.wait_ready(supervisor.children)

    def _registered(self, pid: int) -> bool:
        alive = self.home.catalog.workers.alive(within_seconds=REGISTRATION_SECONDS)
        mine = [worker for worker in alive if worker.pid == pid and worker.host == socket.gethostname()]
        return any(worker.state != "starting" for worker in mine)

    def _announce(self, seconds: float) -> None:
        self.say(f"ready after {seconds:.1f} s")
        if self.record.prefect_ui_url:
            self.say(f"  Prefect UI  {self.record.prefect_ui_url}")
        if self.record.web_url:
            self.say(f"  gateway     {self.record.web_url}")
        self.say(f"  home        {self.home.path}")
        if self.options.roles != roles.ROLES:
            self.say(f"  does        {', '.join(self.options.roles)}")
        elif self.options.workers:
            self.say(
                '  try         mutoscope run text_to_video prompt="a red circle left of a blue square" seed=7'
            )

    def _set_state(self, state: stack.StackState) -> None:
        self.record = self.record.with_state(state)
        self._write()

    def _write(self) -> None:
        self.record = replace(self.record, processes=self.supervisor.records())
        stack.write_record(self.home.path, self.record)

    def _handle_signals(self) -> None:
        """The first signal drains; the second kills, for those who cannot wait."""

        def handle(number: int, frame: FrameType | None) -> None:
            if self.supervisor.stopping.is_set():
                kill_all(self.supervisor.children)
                return
            self.supervisor.stopping.set()
            self.say("stopping: flows, workers, servers (once more to kill)")

        signal.signal(signal.SIGINT, handle)
        signal.signal(signal.SIGTERM, handle)


def kill_all(children: list[Child]) -> None:
    for child in children:
        if child.process is not None and child.process.poll() is None:
            os.killpg(child.process.pid, signal.SIGKILL)


def _port(host: str, asked: int | None, usual: int, option: str) -> int:
    if asked is not None:
        return services.free_port(host, asked, insist=option)
    return services.free_port(host, usual)


def halt(home: Path, seconds: float, say: Callable[[str], None], *, kill: bool = False) -> bool:
    """Stop the home's stack and wait until it is gone. False when none ran.

    Args:
        seconds: how long the drain may take.
        kill: end every process at once instead of draining.

    Raises:
        InvalidParameter: it did not drain within `seconds`.
    """
    record = stack.read_record(home)
    if record is None:
        return False
    if is_held(home):
        try:
            supervisor = psutil.Process(record.pid)
            supervisor.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
            supervisor.wait(seconds)
        except psutil.NoSuchProcess:
            pass
        except psutil.TimeoutExpired:
            raise InvalidParameter(
                "timeout", seconds, "it is still draining: wait longer, or use --kill"
            ) from None
    with exclusive(home):
        sweep(home, say, seconds=0.0 if kill else 5.0)
    return True
