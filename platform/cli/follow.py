"""Progress of a workflow's engine runs, as the catalog's run records tell it.

A follower is called with a record each time it changed. On a terminal it draws one bar per run; into a pipe
or a log it writes a line when a run changes its state or its stage.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import TaskID

    from mutoscope.platform.catalog import RunRecord


class Follower:
    """Base of both ways to show progress, and itself the silent one.

    A run that has succeeded when it is first seen, and that another workflow run asked for, was served from
    memo.
    """

    def __init__(self) -> None:
        self._workflow_runs: set[str] = set()
        self._cached: dict[str, bool] = {}

    def opened(self, workflow_run_id: str) -> None:
        """The workflow that is followed, or one inside it, has its row now."""
        self._workflow_runs.add(workflow_run_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        return

    def __call__(self, run: RunRecord) -> None:
        """Show the run as it is now."""
        foreign = run.workflow_run_id not in self._workflow_runs
        cached = self._cached.setdefault(run.id, run.state == "succeeded" and foreign)
        self.show(run, "cached" if cached else doing(run))

    def show(self, run: RunRecord, what: str) -> None:
        """Draw it; `what` is the run's state or stage in words."""


class Lines(Follower):
    """One line per change of state or stage."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._say = say
        self._last: dict[str, str] = {}

    def show(self, run: RunRecord, what: str) -> None:
        if self._last.get(run.id) != what:
            self._last[run.id] = what
            self._say(f"{run.card or run.kind:<12} {what}")


class Bars(Follower):
    """One bar per run, over its steps."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        super().__init__()
        steps = TextColumn("{task.completed:.0f}/{task.total:.0f}")
        self._progress = Progress(TextColumn("{task.description}"), BarColumn(), steps, TimeElapsedColumn())
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    def show(self, run: RunRecord, what: str) -> None:
        total = run.total or 1
        if run.id not in self._tasks:
            self._tasks[run.id] = self._progress.add_task("", total=total)
        done = total if run.state == "succeeded" else run.step or 0
        description = f"{run.card or run.kind:<12} {what:<12}"
        self._progress.update(self._tasks[run.id], completed=done, total=total, description=description)


def follower(say: Callable[[str], None], *, quiet: bool = False) -> Follower:
    """The follower that suits stdout; a quiet one says nothing."""
    if quiet:
        return Follower()
    return Bars() if sys.stdout.isatty() else Lines(say)


def doing(run: RunRecord) -> str:
    """The stage of a running run, else its state; and which attempt it is, if not the first."""
    what = run.stage if run.state == "running" and run.stage else run.state
    return f"{what} (attempt {run.attempt})" if run.attempt > 1 else what
