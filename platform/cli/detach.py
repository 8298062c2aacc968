"""`mutoscope up --detach`: the same `up` in a session of its own, watched from here until it is ready."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import typer

from mutoscope.platform.cli import boot
from mutoscope.platform.cli.home import Home
from mutoscope.platform.cli.services import log_folder
from mutoscope.platform.errors import ServerUnavailable
from mutoscope.platform.orchestration.stack import read_record

LOOK_SECONDS = 0.1


def start(home: Home, options: boot.Options, say: Callable[[str], None]) -> None:
    """Start a detached `up` and show its lines until it is ready.

    Raises:
        AlreadyRunning: the home's stack runs already.
        typer.Exit: the start failed; with the failed `up`'s exit code, after its lines were shown.
    """
    with boot.exclusive(home.path):
        pass
    log = log_folder(home.path) / "up.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "mutoscope.platform.cli.main", "up", *_flags(options)],
            env={**os.environ, "MUTOSCOPE_HOME": str(home.path)},
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    with log.open(errors="replace") as lines:
        while process.poll() is None and not _is_ready(home.path, process.pid):
            _forward(lines, say)
            time.sleep(LOOK_SECONDS)
        _forward(lines, say)
    if process.poll() is not None:
        raise typer.Exit(process.returncode or 1)
    # The stack is on its own now. Without this, Python warns of a running child when the handle goes.
    process.returncode = 0


def wait_until_ready(home: Home, say: Callable[[str], None], seconds: float = 300.0) -> None:
    """Wait for a stack that another `up` is starting.

    Raises:
        ServerUnavailable: it stopped, or did not get ready in time.
    """
    said, until = False, time.monotonic() + seconds
    while boot.is_held(home.path) and time.monotonic() < until:
        record = read_record(home.path)
        if record is not None and record.state == "ready":
            return
        if not said:
            say("waiting for the stack that is being started")
            said = True
        time.sleep(LOOK_SECONDS)
    raise ServerUnavailable(f"the stack on {home.path} did not get ready: see {log_folder(home.path)}")


def _is_ready(home: Path, pid: int) -> bool:
    record = read_record(home)
    return record is not None and record.pid == pid and record.state == "ready"


def _forward(lines: IO[str], say: Callable[[str], None]) -> None:
    """Show the whole lines written since last time; half a line waits for its end."""
    while True:
        position = lines.tell()
        line = lines.readline()
        if not line.endswith("\n"):
            lines.seek(position)
            return
        if line.startswith("error: "):
            typer.echo(line.rstrip("\n"), err=True)
        else:
            say(line.rstrip("\n"))


def _flags(options: boot.Options) -> list[str]:
    flags = ["--workers", str(options.workers), "--only", ",".join(options.roles)]
    for card in options.cards:
        flags += ["--card", card]
    if options.port is not None:
        flags += ["--port", str(options.port)]
    if options.web_port is not None:
        flags += ["--web-port", str(options.web_port)]
    return flags
