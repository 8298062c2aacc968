"""Throttled progress."""

from __future__ import annotations

from typing import Any

import pytest

from mutoscope.platform.engine.request import Progress
from mutoscope.platform.errors import CatalogError
from mutoscope.workers.progress import INTERVAL_S, ProgressReports


class Recorder:
    """Stands in for a catalog: keeps reports, answers as told."""

    def __init__(self) -> None:
        self.runs = self
        self.reports: list[tuple[Any, ...]] = []
        self.answer: str | Exception = "kept"

    def progress(self, *report: Any) -> str:
        self.reports.append(report)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def told(recorder: Recorder, clock: Clock) -> tuple[Any, list[str]]:
    """A progress callback, and what it told the worker."""
    heard: list[str] = []
    reports = ProgressReports(recorder, "w", clock=clock)  # type: ignore[arg-type]
    callback = reports.of("r", on_cancel=lambda: heard.append("cancel"), on_lost=lambda: heard.append("lost"))
    return callback, heard


def test_one_report_per_interval_and_none_of_the_end() -> None:
    recorder, clock = Recorder(), Clock()
    report, _ = told(recorder, clock)
    for step in range(1, 11):
        clock.now += INTERVAL_S * 0.4
        report(Progress("r", "denoise", step, 10))
    # 0.4 of an interval each: every third step is due (1.2 intervals). The end is told with the outputs.
    assert [r[3] for r in recorder.reports] == [3, 6, 9]
    assert recorder.reports[-1] == ("r", "w", "denoise", 9, 10)


def test_a_run_shorter_than_an_interval_reports_nothing() -> None:
    recorder, clock = Recorder(), Clock()
    report, _ = told(recorder, clock)
    for step in (1, 2, 3):
        report(Progress("r", "denoise", step, 3))
    assert recorder.reports == []


@pytest.mark.parametrize("news", ["cancel", "lost"])
def test_brings_news_back(news: str) -> None:
    recorder, clock = Recorder(), Clock()
    report, heard = told(recorder, clock)
    recorder.answer = news
    clock.now += 2 * INTERVAL_S
    report(Progress("r", "denoise", 4, 5))
    assert heard == [news]


def test_a_catalog_that_is_away_does_not_fail_the_run() -> None:
    recorder, clock = Recorder(), Clock()
    report, heard = told(recorder, clock)
    recorder.answer = CatalogError("does not answer")
    clock.now += 2 * INTERVAL_S
    report(Progress("r", "denoise", 4, 5))
    assert heard == []
