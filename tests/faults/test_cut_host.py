"""A worker whose host is cut off from database and store: its runs go on elsewhere, its late word does not
count, and it serves again once the network is back.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.deadline import until
from tests.support.link import Link
from tests.support.servers import S3Server
from tests.support.workshop import Workshop


@pytest.fixture
def shared(tmp_path: Path, postgres_catalog_url: str, s3_bucket: str) -> Iterator[Workshop]:
    """A home whose catalog and store are on servers."""
    workshop = Workshop(
        tmp_path / "home",
        database_url=postgres_catalog_url,
        store_url=s3_bucket,
        lease_seconds=3.0,
        heartbeat_seconds=0.5,
    )
    yield workshop
    workshop.close()


@pytest.fixture
def link(postgres_catalog_url: str, s3_server: S3Server) -> Iterator[Link]:
    link = Link({"postgres": _port(postgres_catalog_url), "s3": _port(s3_server.endpoint)})
    yield link
    link.close()


def test_what_is_computed_outlasts_a_store_that_is_away_for_longer_than_a_write_waits(
    shared: Workshop, link: Link
) -> None:
    patience = {"MUTOSCOPE_STORE_DEADLINE_SECONDS": "0.5"}
    with shared.worker(AWS_ENDPOINT_URL=f"http://127.0.0.1:{link.ports['s3']}", **patience) as worker:
        assert shared.run(seed=1).state == "succeeded"
        link.drop("s3")
        run = shared.enqueue(seed=2).run
        until(lambda: f"not reported, trying again in 1 s: run={run.id}" in worker.log, "a report put off")
        assert shared.catalog.runs.get(run.id).state == "running"
        link.mend()
        done = shared.wait(run.id)
    assert (done.state, done.attempt) == ("succeeded", 1)


def test_its_run_goes_on_elsewhere_and_its_late_word_does_not_count(
    shared: Workshop, link: Link, tmp_path: Path
) -> None:
    database = shared.settings.database_url
    far_away = {
        "MUTOSCOPE_DATABASE_URL": database.replace(f":{_port(database)}/", f":{link.ports['postgres']}/"),
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{link.ports['s3']}",
    }
    gate = tmp_path / "gate"
    with shared.worker(**far_away) as far:
        run = shared.enqueue(seed=1, gate=str(gate)).run
        until(gate.with_name("gate.reached").exists, "the run in its first step")
        link.cut()
        passed = dict(link.passed)
        with shared.worker() as near:
            gate.touch()  # both go on now, and the one that is cut off cannot say so
            done = shared.wait(run.id)
            assert (done.state, done.attempt, done.worker) == ("succeeded", 2, near.id)
        assert dict(link.passed) == passed, "the cut must have been one"
        link.mend()
        until(lambda: "discarded run=" in far.log, "the worker that was cut off hears of it")
        assert shared.catalog.runs.get(run.id) == done, "its rows are untouched"
        after = shared.run(seed=2)
        assert (after.state, after.worker) == ("succeeded", far.id), "it serves on"


def _port(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port
