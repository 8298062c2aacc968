"""Worker processes in milliseconds: forked from a server that has imported torch already.

A process so made is as real as any: its own pid, memory, connections and death. Only the import is shared.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

# A fork of a process with compute threads would inherit their locks without the threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["mutoscope.workers.worker", "tests.support.tinycard.program", "s3fs"])


class ForkedWorker:
    """`python -m mutoscope.workers ARGUMENTS`, with the part of `subprocess.Popen` that tests need."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._process = _CONTEXT.Process(target=_serve, args=(list(arguments), dict(environment), str(log)))
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self) -> int | None:
        self._process.join()
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)


def _serve(arguments: list[str], environment: dict[str, str], log: str) -> None:
    os.environ.clear()
    os.environ.update(environment)
    stream = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(stream, 1)
    os.dup2(stream, 2)
    from mutoscope.workers.__main__ import main

    sys.exit(main(arguments))
