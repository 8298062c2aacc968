"""Progress on a terminal, and where there is none."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

PROGRAM = """
from mutoscope.platform.cli.progress import progress
with progress("mark", elsewhere=print) as show:
    show("mark", 1, 2)
    show("sweep", 3, 0)
"""
ERASE_LINE = "\x1b[2K"


def test_a_terminal_shows_the_stage_under_way_and_is_clean_afterwards() -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=theirs, env=environment, check=True
    )
    os.close(theirs)
    shown = ""
    try:
        while data := os.read(ours, 4096):
            shown += data.decode()
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(ours)
    assert done.stdout == b""
    last_line = shown.split("sweep")[-1]
    assert "3/?" in last_line, shown
    assert "mark" not in last_line, shown
    assert shown.endswith(ERASE_LINE)


def test_without_a_terminal_reports_go_elsewhere() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout == "mark 1 2\nsweep 3 0\n"
    assert done.stderr == ""
