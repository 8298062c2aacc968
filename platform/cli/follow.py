"""Progress of a workflow's engine runs, as the catalog's run records tell it.

A follower is called with a record each time it changed. On a terminal it draws one bar per run; into a pipe
or a log it writes a line when a run changes its state or its stage.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from rich.progress import TaskID

    from mutoscope.platform.catalog import RunRecord

FINISHED = ("succeeded", "failed", "cancelled")


class Follower(Protocol):
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...
    def __call__(self, run: RunRecord) -> None: ...


def follower(say: Callable[[str], None], *, quiet: bool = False) -> Follower:
    """The follower that suits stdout; a quiet one says nothing."""
    if quiet:
        return Lines(lambda line: None)
    return Bars() if sys.stdout.isatty() else Lines(say)


class Lines:
    """One line per change of state or stage."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._last: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        return

    def __call__(self, run: RunRecord) -> None:
        line = describe(run, steps=False)
        if self._last.get(run.id) != line:
            self._last[run.id] = line
            self._say(line)


class Bars:
    """One bar per run, over its steps."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TimeElapsedColumn(),
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    def __call__(self, run: RunRecord) -> None:
        if run.id not in self._tasks:
            self._tasks[run.id] = self._progress.add_task(run.card or run.kind, total=run.total or 1)
        total = run.total or 1
        done = total if run.state == "succeeded" else run.step or 0
        self._progress.update(
            self._tasks[run.id], completed=done, total=total, description=describe(run, steps=False)
        )


def describe(run: RunRecord, *, steps: bool = True) -> str:
    """A run's state on one line: ``flux-t2i  denoise 5/20``."""
    if run.state == "running" and run.stage:
        step = f" {run.step}/{run.total}" if steps and run.total else ""
        doing = f"{run.stage}{step}"
    else:
        doing = str(run.state)
    again = f" (attempt {run.attempt})" if run.attempt and run.attempt > 1 else ""
    return f"{run.card:<12} {doing}{again}"
