"""Run pages, written when a workflow run has ended: by a thread of their own, which nobody waits for.

A page costs a few queries and a few writes to the store, which over a network is more than a whole memo hit.
So a workflow hands its id over and returns. The process ends when the thread has written what it was given.
Runs that end while it is at work are written together, and their indexes once. Losing a page never fails a
run: it is logged, and `mutoscope pages rebuild` writes it.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor

from mutoscope.platform.custody.pages import Pages
from mutoscope.platform.orchestration.runtime import Runtime

_log = logging.getLogger("mutoscope.pages")


class PageQueue:
    """Ids of workflow runs that have ended, and the thread that writes their pages."""

    def __init__(self) -> None:
        # Its threads are joined when the interpreter ends, after they have done what was submitted.
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="run-pages")
        self._lock = threading.Lock()
        self._waiting: list[tuple[Runtime, str]] = []
        self._last: Future[None] | None = None

    def add(self, runtime: Runtime, run_id: str) -> None:
        """Have the page of a run written. Returns at once, and never raises."""
        if not runtime.settings.run_pages:
            return
        with self._lock:
            self._waiting.append((runtime, run_id))
            if len(self._waiting) == 1:
                try:
                    self._last = self._executor.submit(self._write_all)
                except RuntimeError:  # the interpreter is ending
                    _lost([run_id], "the process ended")

    def drain(self) -> None:
        """Wait until everything added so far is written, or lost."""
        with self._lock:
            last = self._last
        if last is not None:
            last.result()

    def _write_all(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        runtimes = {id(runtime): runtime for runtime, _ in waiting}
        for key, runtime in runtimes.items():
            run_ids = [run_id for owner, run_id in waiting if id(owner) == key]
            try:
                Pages(runtime.catalog, runtime.store).write(run_ids)
            except Exception as error:  # whatever it is, the runs themselves are well
                _lost(run_ids, error)


def _lost(run_ids: list[str], reason: object) -> None:
    _log.warning(
        "the pages of %s were not written (%s): `mutoscope pages rebuild` writes them",
        ", ".join(run_ids),
        reason,
    )


RUN_PAGES = PageQueue()
"""The process's queue."""
