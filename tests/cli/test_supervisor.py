"""Children: readiness, death, backoff, draining. The children are small Python processes."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from mutoscope.platform.cli.supervisor import Child, Service, StackFailed, Supervisor, is_alive
from mutoscope.platform.orchestration.stack import ProcessRecord
from tests.support.deadline import until

# It says "here" only when its handlers are installed.
SLEEPER = "import signal, sys; print('here', flush=True); signal.pause()"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEPER}"
PARENT = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {STUBBORN!r}]); {STUBBORN}"


def service(name: str, script: str, log: Path, *, drain_seconds: float = 20.0, once: bool = False) -> Service:
    """A service that is ready as soon as its log says "here"."""
    return Service(
        name,
        [sys.executable, "-c", script],
        {"PYTHONUNBUFFERED": "1"},
        ready=lambda pid: log.exists() and "here" in log.read_text(),
        drain_seconds=drain_seconds,
        once=once,
    )


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def supervisor(tmp_path: Path, lines: list[str]) -> Iterator[Supervisor]:
    made = Supervisor(tmp_path, lines.append)
    yield made
    made.stop()


@contextmanager
def watching(supervisor: Supervisor) -> Iterator[None]:
    thread = threading.Thread(target=supervisor.watch)
    thread.start()
    try:
        yield
    finally:
        supervisor.stopping.set()
        thread.join()


def pid_of(child: Child) -> int:
    assert child.process is not None
    return child.process.pid


def test_waits_until_ready_and_records_the_process(
    supervisor: Supervisor, tmp_path: Path, lines: list[str]
) -> None:
    child = supervisor.start(service("one", SLEEPER, tmp_path / "one.log"))
    supervisor.wait_ready([child])
    (record,) = supervisor.records()
    assert (record.name, record.pid, record.restarts) == ("one", pid_of(child), 0)
    assert is_alive(record)
    assert len(lines) == 1
    assert lines[0].startswith("one            ready after")


def test_a_child_that_ends_early_fails_the_start(supervisor: Supervisor, tmp_path: Path) -> None:
    script = "import sys; print('first'); sys.exit('the port is taken')"
    child = supervisor.start(service("one", script, tmp_path / "one.log"))
    with pytest.raises(StackFailed) as caught:
        supervisor.wait_ready([child])
    assert str(caught.value) == (
        f"one ended with exit code 1 before it was ready: the port is taken (log: {tmp_path / 'one.log'})"
    )


def test_a_failing_neighbour_fails_the_start_as_well(supervisor: Supervisor, tmp_path: Path) -> None:
    slow = supervisor.start(service("slow", "import signal; signal.pause()", tmp_path / "slow.log"))
    supervisor.start(service("broken", "raise SystemExit(3)", tmp_path / "broken.log"))
    with pytest.raises(StackFailed, match="broken ended with exit code 3"):
        supervisor.wait_ready([slow])


def test_one_job_is_done_when_it_ends_well(supervisor: Supervisor, tmp_path: Path) -> None:
    child = supervisor.start(service("job", "print('did it')", tmp_path / "job.log", once=True))
    supervisor.wait_ready([child])
    assert child.state == "done"
    assert supervisor.records() == ()


def test_a_job_may_fail_at_first(supervisor: Supervisor, tmp_path: Path, lines: list[str]) -> None:
    flag = tmp_path / "flag"
    script = f"import pathlib; f = pathlib.Path({str(flag)!r}); old = f.exists(); f.touch(); exit(not old)"
    job = replace(service("job", script, tmp_path / "job.log", once=True), attempts=2)
    child = supervisor.start(job)
    supervisor.wait_ready([child])
    assert (child.state, child.restarts) == ("done", 1)
    assert "died (exit code 1): again in 0.5 s" in lines[0]


def test_a_job_that_keeps_failing_fails_the_start(supervisor: Supervisor, tmp_path: Path) -> None:
    job = replace(service("job", "raise SystemExit('no')", tmp_path / "job.log", once=True), attempts=2)
    child = supervisor.start(job)
    with pytest.raises(StackFailed, match="job ended with exit code 1 before it was ready: no"):
        supervisor.wait_ready([child])
    assert child.restarts == 1


def test_a_killed_child_is_started_again(supervisor: Supervisor, tmp_path: Path, lines: list[str]) -> None:
    child = supervisor.start(service("one", SLEEPER, tmp_path / "one.log"))
    supervisor.wait_ready([child])
    first = pid_of(child)
    with watching(supervisor):
        os.kill(first, signal.SIGKILL)
        until(lambda: child.restarts == 1 and child.state == "ready", "the child is back")
    assert pid_of(child) != first
    assert "died (signal SIGKILL): again in 0.5 s" in lines[1]
    assert [record.restarts for record in supervisor.records()] == [1]


def test_backoff_grows_with_each_early_death(
    supervisor: Supervisor, tmp_path: Path, lines: list[str]
) -> None:
    child = supervisor.start(service("one", SLEEPER, tmp_path / "one.log"))
    supervisor.wait_ready([child])
    with watching(supervisor):
        for restarts in (1, 2):
            os.kill(pid_of(child), signal.SIGKILL)
            until(lambda n=restarts: child.restarts == n and child.state == "ready", "the child is back")
    deaths = [line for line in lines if "died" in line]
    assert ["0.5 s" in deaths[0], "1 s" in deaths[1]] == [True, True]


def test_stops_the_last_started_first(supervisor: Supervisor, tmp_path: Path, lines: list[str]) -> None:
    children = [supervisor.start(service(n, SLEEPER, tmp_path / f"{n}.log")) for n in ("one", "two", "three")]
    supervisor.wait_ready(children)
    lines.clear()
    supervisor.stop()
    assert [line.split() for line in lines] == [["three", "stopped"], ["two", "stopped"], ["one", "stopped"]]
    assert supervisor.records() == ()


def test_a_stubborn_child_is_killed_with_its_own_children(supervisor: Supervisor, tmp_path: Path) -> None:
    log = tmp_path / "one.log"
    child = supervisor.start(service("one", PARENT, log, drain_seconds=0.2))
    until(lambda: log.exists() and log.read_text().count("here") == 2, "parent and child ignore SIGTERM")
    (grandchild,) = psutil.Process(pid_of(child)).children()
    supervisor.stop()
    assert child.process is not None
    assert child.process.returncode == -signal.SIGKILL
    until(lambda: gone(grandchild), "the grandchild is gone")


def gone(process: psutil.Process) -> bool:
    # Nobody may be there to reap an orphan in a container: a zombie is gone as well.
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_a_reused_pid_is_not_the_process() -> None:
    me = psutil.Process()
    assert is_alive(ProcessRecord("me", me.pid, me.create_time(), "log"))
    assert not is_alive(ProcessRecord("me", me.pid, me.create_time() - 100.0, "log"))


def test_every_change_is_announced(tmp_path: Path, lines: list[str]) -> None:
    seen: list[tuple[str, ...]] = []
    supervisor = Supervisor(tmp_path, lines.append)
    changed: Callable[[], None] = lambda: seen.append(tuple(r.name for r in supervisor.records()))  # noqa: E731
    supervisor.changed = changed
    child = supervisor.start(service("one", SLEEPER, tmp_path / "one.log"))
    supervisor.wait_ready([child])
    supervisor.stop()
    assert seen == [("one",), ()]


def test_a_team_is_asked_to_stop_together(supervisor: Supervisor, tmp_path: Path) -> None:
    """Each ends well only once the other has been asked too: one after another, the first would be killed."""
    script = (
        "import pathlib, signal, sys, time\n"
        "mine, other = map(pathlib.Path, {paths!r})\n"
        "def end(*_):\n"
        "    mine.touch()\n"
        "    while not other.exists(): time.sleep(0.01)\n"
        "    print('drained', flush=True); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end); print('here', flush=True)\n"
        "while True: signal.pause()\n"
    )
    names = ("one", "two")
    for mine, other in (names, names[::-1]):
        paths = (str(tmp_path / f"{mine}.asked"), str(tmp_path / f"{other}.asked"))
        made = service(mine, script.format(paths=paths), tmp_path / f"{mine}.log")
        supervisor.start(replace(made, team="pair"))
    supervisor.wait_ready(supervisor.children)
    supervisor.stop()
    assert [(tmp_path / f"{name}.log").read_text().split() for name in names] == [["here", "drained"]] * 2
