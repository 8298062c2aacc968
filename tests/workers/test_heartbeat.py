"""Leases and the news that renewing them brings. Beats are called here, not waited for."""

from __future__ import annotations

import pytest

from mutoscope.platform.catalog import RunRecord, WorkerInfo
from mutoscope.platform.ids import new_id
from mutoscope.workers.heartbeat import Heartbeat
from tests.support.workshop import Workshop


@pytest.fixture
def beating(workshop: Workshop) -> tuple[Workshop, Heartbeat, RunRecord]:
    """A registered worker that holds one claimed run, and its heartbeat."""
    worker_id = new_id()
    workshop.catalog.workers.register(WorkerInfo(worker_id, "host", 1, "cpu"))
    heartbeat = Heartbeat(workshop.catalog, worker_id, interval=3600, lease_seconds=30)
    spec = workshop.spec(seed=1)
    workshop.catalog.runs.enqueue(spec, present=workshop.store.contains)
    (run,) = workshop.catalog.runs.claim(worker_id, {spec.card: spec.contract}, 5)
    heartbeat.watch(run.id)
    return workshop, heartbeat, run


def test_a_beat_extends_the_lease_and_describes_the_worker(
    beating: tuple[Workshop, Heartbeat, RunRecord],
) -> None:
    workshop, heartbeat, run = beating
    heartbeat.describe({"tiny-test": {"weights": {"net": "abc"}}}, "draining")
    heartbeat.beat()
    renewed = workshop.catalog.runs.get(run.id)
    assert run.lease_expires_at is not None
    assert renewed.lease_expires_at is not None
    # A lease of 30 s replaces one of 5 s, whatever passed between the two statements.
    assert renewed.lease_expires_at >= run.lease_expires_at + 25
    (row,) = workshop.catalog.workers.list()
    assert (row.state, row.cards["tiny-test"]["weights"]) == ("draining", {"net": "abc"})
    assert heartbeat.take_cancelled() == heartbeat.take_lost() == set()


def test_a_cancel_is_heard(beating: tuple[Workshop, Heartbeat, RunRecord]) -> None:
    workshop, heartbeat, run = beating
    workshop.catalog.runs.request_cancel(run.id)
    heartbeat.beat()
    assert heartbeat.take_cancelled() == {run.id}
    assert heartbeat.take_cancelled() == set()


def test_a_lost_lease_is_told_once_and_not_renewed(beating: tuple[Workshop, Heartbeat, RunRecord]) -> None:
    workshop, heartbeat, run = beating
    assert run.worker is not None
    workshop.catalog.runs.release(run.id, run.worker)
    heartbeat.beat()
    assert heartbeat.take_lost() == {run.id}
    heartbeat.beat()
    assert heartbeat.take_lost() == set()


def test_a_run_reported_meanwhile_is_not_lost(beating: tuple[Workshop, Heartbeat, RunRecord]) -> None:
    workshop, heartbeat, run = beating
    assert run.worker is not None
    workshop.catalog.runs.succeed(run.id, run.worker, {})
    heartbeat.unwatch(run.id)
    heartbeat.beat()
    assert heartbeat.take_lost() == set()


def test_the_thread_outlives_a_catalog_that_does_not_answer(
    beating: tuple[Workshop, Heartbeat, RunRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop, _, run = beating
    assert run.worker is not None
    heartbeat = Heartbeat(workshop.catalog, run.worker, interval=0.01, lease_seconds=30)
    beats: list[int] = []

    def failing_at_first() -> None:
        beats.append(1)
        if len(beats) < 3:
            raise OSError("no route to host")
        heartbeat._stopping.set()

    monkeypatch.setattr(heartbeat, "beat", failing_at_first)
    heartbeat.start()
    heartbeat.join(30)
    assert len(beats) == 3
