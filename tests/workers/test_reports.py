"""Reports of runs while catalog or store do not answer. The outage is planted between worker and catalog."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mutoscope.platform.catalog import RunRecord
from mutoscope.platform.errors import CatalogUnavailable, StoreUnavailable
from mutoscope.workers.reports import RETRY_S, Reports
from tests.support.workshop import Workshop

WORKER = "worker-1"


@pytest.fixture
def run(workshop: Workshop) -> RunRecord:
    """A claimed run."""
    spec = workshop.spec(seed=1)
    workshop.catalog.runs.enqueue(spec, present=workshop.store.contains)
    (run,) = workshop.catalog.runs.claim(WORKER, {spec.card: spec.contract}, 30)
    return run


def outage(errors: list[Exception], then: Callable[[], object]) -> Callable[[], None]:
    """Raises these errors, one each time, then succeeds."""

    def make() -> None:
        if errors:
            raise errors.pop(0)
        then()

    return make


def test_a_report_is_repeated_until_somebody_hears_it(workshop: Workshop, run: RunRecord) -> None:
    now, settled = [100.0], []
    reports = Reports(workshop.catalog, WORKER, clock=lambda: now[0])
    errors: list[Exception] = [CatalogUnavailable("away"), StoreUnavailable("away")]
    make = outage(errors, lambda: workshop.catalog.runs.succeed(run.id, WORKER, {}))
    reports.add(run, make, lambda: settled.append(run.id))
    assert (len(reports), settled) == (1, [])
    reports.retry()
    assert len(errors) == 1, "not before its time"
    for _ in range(2):
        now[0] += RETRY_S
        reports.retry()
    assert (len(reports), settled) == (0, [run.id])
    assert workshop.catalog.runs.get(run.id).state == "succeeded"


def test_a_report_of_which_only_the_answer_was_lost_is_made_already(
    workshop: Workshop, run: RunRecord, caplog: pytest.LogCaptureFixture
) -> None:
    def heard_in_silence() -> None:
        workshop.catalog.runs.succeed(run.id, WORKER, {})
        if len(reports) == 0 and not tried:
            tried.append(1)
            raise CatalogUnavailable("the connection broke after the commit")

    tried: list[int] = []
    caplog.set_level("INFO")
    reports = Reports(workshop.catalog, WORKER)
    reports.add(run, heard_in_silence, lambda: None)
    reports.retry(at_once=True)
    assert f"reported already run={run.id} state=succeeded" in caplog.text
    assert "discarded" not in caplog.text
    assert len(workshop.catalog.runs.attempts(run.id)) == 0


def test_a_run_that_another_has_taken_is_not_reported(
    workshop: Workshop, run: RunRecord, caplog: pytest.LogCaptureFixture
) -> None:
    workshop.catalog.runs.release(run.id, WORKER)
    reports = Reports(workshop.catalog, WORKER)
    reports.add(run, lambda: workshop.catalog.runs.succeed(run.id, WORKER, {}) and None, lambda: None)
    assert len(reports) == 0
    assert f"discarded run={run.id}" in caplog.text
    assert workshop.catalog.runs.get(run.id).state == "queued"


def test_what_nobody_hears_in_the_end_is_left_to_its_lease(
    workshop: Workshop, run: RunRecord, caplog: pytest.LogCaptureFixture
) -> None:
    reports = Reports(workshop.catalog, WORKER)
    errors: list[Exception] = [CatalogUnavailable("away")] * 3
    settled: list[str] = []
    reports.add(run, outage(errors, lambda: None), lambda: settled.append(run.id))
    reports.retry(at_once=True)
    reports.give_up()
    assert (len(reports), settled) == (0, [run.id])
    assert "left to its lease" in caplog.text
    assert workshop.catalog.runs.get(run.id).state == "running"
