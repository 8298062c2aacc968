"""Killing a process around a commit: all of the transaction or nothing, and saying it again counts once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mutoscope.platform.catalog import ArtifactRow, Catalog, Edge
from mutoscope.platform.errors import LeaseLost
from tests.support import big, racers
from tests.support.contradictions import contradictions
from tests.support.deadline import until
from tests.support.records import CARD, SERVES, a_spec, absent, an_artifact, claim, queue

IMAGE, NET = an_artifact("image"), an_artifact("net", "weights")
POINTS = pytest.mark.parametrize("point", ["catalog.before_commit", "catalog.after_commit"])

Die = Callable[..., None]


@pytest.fixture
def die(any_catalog_url: str, tmp_path: Path) -> Die:
    """Run a function of the catalog in a process that is killed at a point, and prove that it was."""

    def die(point: str, target: Callable[..., None], *arguments: object) -> None:
        racers.killed_at(point, tmp_path / "fired", target, any_catalog_url, *arguments)

    return die


def kept(point: str) -> bool:
    return point == "catalog.after_commit"


def enqueue(url: str) -> None:
    Catalog.open(url).runs.enqueue(a_spec(), present=absent)


@POINTS
def test_enqueue(any_catalog: Catalog, die: Die, point: str) -> None:
    die(point, enqueue)
    assert len(any_catalog.runs.list()) == kept(point)
    again = any_catalog.runs.enqueue(a_spec(), present=absent)
    assert again.disposition == ("attached" if kept(point) else "new")
    (run,) = any_catalog.runs.list()
    assert (run.id, run.state, run.waiters) == (again.run.id, "queued", 1 + kept(point))
    assert contradictions(any_catalog) == {}


def take(url: str, lease: float) -> None:
    Catalog.open(url).runs.claim("the-dead", SERVES, lease)


@POINTS
def test_claim(any_catalog: Catalog, die: Die, point: str) -> None:
    run = queue(any_catalog)
    die(point, take, 0.001)
    found = any_catalog.runs.get(run.id)
    assert (found.state, found.attempt) == (("running", 1) if kept(point) else ("queued", 0))
    # On Postgres the row stays locked until the server has noticed the death; a lease must run out.
    taken = until(lambda: any_catalog.runs.claim("worker-b", SERVES, 60), "the run is free")
    assert [(r.id, r.worker, r.attempt) for r in taken] == [(run.id, "worker-b", 1 + kept(point))]
    assert contradictions(any_catalog) == {}


def succeed(url: str, run_id: str) -> None:
    Catalog.open(url).runs.succeed(run_id, "worker-a", {"image": IMAGE})


@POINTS
def test_succeed(any_catalog: Catalog, die: Die, point: str) -> None:
    run = queue(any_catalog)
    claim(any_catalog)
    die(point, succeed, run.id)
    if kept(point):
        with pytest.raises(LeaseLost):
            any_catalog.runs.succeed(run.id, "worker-a", {"image": an_artifact("other")})
    else:
        assert any_catalog.runs.get(run.id).state == "running"
        assert any_catalog.artifacts.get(IMAGE.digest) is None
        any_catalog.runs.succeed(run.id, "worker-a", {"image": IMAGE})
    assert any_catalog.runs.get(run.id).state == "succeeded"
    assert any_catalog.runs.outputs(run.id) == {"image": IMAGE}
    assert [r.id for r in any_catalog.runs.generated_by(IMAGE.digest)] == [run.id]
    assert contradictions(any_catalog) == {}


def record(url: str) -> None:
    Catalog.open(url).runs.record_completed("import", card=CARD, generated={"weights:net": NET})


@POINTS
def test_record_completed(any_catalog: Catalog, die: Die, point: str) -> None:
    die(point, record)
    assert len(any_catalog.runs.list()) == kept(point)
    assert (any_catalog.artifacts.get(NET.digest) is not None) is kept(point)
    assert contradictions(any_catalog) == {}


def publish(url: str) -> None:
    Catalog.open(url).weights.publish(CARD, "net", NET.digest)


@POINTS
def test_publish(any_catalog: Catalog, die: Die, point: str) -> None:
    any_catalog.artifacts.record(NET)
    die(point, publish)
    assert len(any_catalog.weights.list()) == kept(point)
    assert any_catalog.weights.publish(CARD, "net", NET.digest).ordinal == 1
    assert len(any_catalog.weights.list()) == 1
    assert contradictions(any_catalog) == {}


def bring(url: str) -> None:
    run = big.a_run("engine", big.START)
    with Catalog.open(url).bulk() as bulk:
        bulk.artifacts([ArtifactRow(IMAGE)])
        bulk.runs([run])
        bulk.edges([Edge(run.id, "generated", "image", 0, IMAGE.digest)])


@POINTS
def test_bulk(any_catalog: Catalog, die: Die, point: str) -> None:
    die(point, bring)
    assert len(any_catalog.runs.list()) == len(any_catalog.artifacts.list()) == kept(point)
    assert contradictions(any_catalog) == {}
