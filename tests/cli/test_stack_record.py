"""HOME/stack.json, the lock of a home, ports, and what is left of a killed stack."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from mutoscope.platform.cli import boot
from mutoscope.platform.cli.services import free_port
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.orchestration import stack
from mutoscope.platform.orchestration.stack import ProcessRecord, StackRecord

RECORD = StackRecord(
    state="ready",
    pid=41,
    created=1000.5,
    started_at=1001.0,
    prefect_api_url="http://127.0.0.1:4200/api",
    prefect_ui_url="http://127.0.0.1:4200",
    web_url="http://127.0.0.1:4280",
    processes=(ProcessRecord("worker-1", 42, 1002.25, "/logs/worker-1.log", restarts=3),),
)


@contextmanager
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that leads a group and waits to be told to end."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_record_survives_the_file(tmp_path: Path) -> None:
    stack.write_record(tmp_path, RECORD)
    assert stack.read_record(tmp_path) == RECORD
    assert [path.name for path in tmp_path.iterdir()] == ["stack.json"], "no temporary file is left"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format": "mutoscope.stack/0"}', '{"format": "mutoscope.stack/1"}']
)
def test_what_is_no_record_counts_as_none(tmp_path: Path, text: str) -> None:
    stack.record_path(tmp_path).write_text(text)
    assert stack.read_record(tmp_path) is None


def test_joining_points_the_process_at_the_stack(tmp_path: Path) -> None:
    stack.write_record(tmp_path, RECORD)
    environment = {"PREFECT_HOME": "/somewhere/else", "PREFECT_SERVER_ANALYTICS_ENABLED": "true"}
    assert stack.join(tmp_path, environment) == RECORD
    assert environment["PREFECT_API_URL"] == RECORD.prefect_api_url
    assert environment["MUTOSCOPE_WEB_URL"] == RECORD.web_url
    assert environment["PREFECT_HOME"] == str(tmp_path / "prefect")
    assert environment["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"
    assert environment["PREFECT_SERVER_EPHEMERAL_ENABLED"] == "0"


def test_joining_leaves_a_server_that_the_caller_named(tmp_path: Path) -> None:
    stack.write_record(tmp_path, RECORD)
    environment = {"PREFECT_API_URL": "http://elsewhere/api"}
    stack.join(tmp_path, environment)
    assert environment["PREFECT_API_URL"] == "http://elsewhere/api"


def test_joining_nothing_changes_nothing(tmp_path: Path) -> None:
    environment: dict[str, str] = {}
    assert stack.join(tmp_path, environment) is None
    assert environment == {}


def test_one_up_per_home(tmp_path: Path) -> None:
    with boot.exclusive(tmp_path):
        assert boot.is_held(tmp_path)
        with (
            pytest.raises(boot.AlreadyRunning, match="a stack is already running") as caught,
            boot.exclusive(tmp_path),
        ):
            pass
        assert caught.value.exit_code == 2
    assert not boot.is_held(tmp_path)


def test_the_lock_dies_with_its_holder(tmp_path: Path) -> None:
    script = (
        "import signal, sys, pathlib\nfrom mutoscope.platform.cli import boot\n"
        "with boot.exclusive(pathlib.Path(sys.argv[1])):\n    print('held', flush=True); signal.pause()"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert boot.is_held(tmp_path)
        holder.kill()
    assert not boot.is_held(tmp_path)


def test_sweep_ends_what_a_killed_stack_left_and_only_that(tmp_path: Path) -> None:
    said: list[str] = []
    with sleeper() as orphan, sleeper() as stranger:
        created = psutil.Process(orphan.pid).create_time()
        left = ProcessRecord("worker-1", orphan.pid, created, "log")
        # A pid that a later process got: recorded with another start time.
        reused = ProcessRecord("gateway", stranger.pid, created - 1000.0, "log")
        processes = (left, reused)
        stack.write_record(tmp_path, StackRecord(**{**_fields(RECORD), "processes": processes}))
        boot.sweep(tmp_path, said.append)
        assert orphan.wait(30) is not None
        assert stranger.poll() is None
    assert said == ["stopping 1 processes that an earlier stack left behind"]
    assert stack.read_record(tmp_path) is None


def test_halting_without_a_stack_does_nothing(tmp_path: Path) -> None:
    assert boot.halt(tmp_path, 1.0, print) is False


def test_a_taken_port_is_replaced_unless_it_was_asked_for() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert free_port("127.0.0.1", port) not in (0, port)
        with pytest.raises(InvalidParameter) as caught:
            free_port("127.0.0.1", port, insist="port")
    assert str(caught.value) == f"port={port} is not valid: the port is taken; name another one or none"


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="use an address of this machine"):
        free_port("192.0.2.1", 4200)


def _fields(record: StackRecord) -> dict[str, object]:
    return {name: getattr(record, name) for name in StackRecord.__slots__}
