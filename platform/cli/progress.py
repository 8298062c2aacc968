"""How far a long command is: a bar on a terminal's stderr, and silence where there is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Show = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and of how much in all (0: nobody knows)."""


def silent(what: str, done: int, total: int) -> None:
    """A `Show` that shows nothing."""


@contextmanager
def progress(
    what: str, *, in_bytes: bool = False, quiet: bool = False, elsewhere: Show = silent
) -> Iterator[Show]:
    """Shows what is reported while the block runs; leaves no trace.

    Args:
        what: shown until the first report.
        in_bytes: reports count bytes, which are shown with their rate.
        quiet: show nothing.
        elsewhere: takes the reports where there is no terminal.
    """
    if quiet or not sys.stderr.isatty():
        yield silent if quiet else elsewhere
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    counts: tuple[ProgressColumn, ...] = (MofNCompleteColumn(),)
    if in_bytes:
        counts = (DownloadColumn(binary_units=True), TransferSpeedColumn())
    columns = (TextColumn("{task.description:<10}"), BarColumn(), *counts, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task, shown = bars.add_task(what, total=None), what

        def show(what: str, done: int, total: int) -> None:
            nonlocal task, shown
            if what != shown:  # a bar of its own, because a total once known cannot be unknown again
                bars.remove_task(task)
                task, shown = bars.add_task(what, total=None), what
            bars.update(task, completed=done, total=total or None)

        yield show
