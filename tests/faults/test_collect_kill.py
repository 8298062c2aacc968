"""Killing the collector at every named point: the next one finishes its work, nothing that is kept is lost,
nothing is counted twice.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.custody.fsck import Report, fsck
from tests.support.collecting import DAY, Holdings
from tests.support.collectors import collect_until_killed, succeed
from tests.support.parts import later

POINTS = (
    "gc.after_mark",
    "gc.after_tombstone",
    "gc.trash",
    "gc.trash:kill@4",
    "gc.after_trash",
    "gc.after_settle",
    "gc.before_purge",
    "gc.after_purge",
)
EVERYWHERE = ("gc.trash:kill@4", "gc.after_settle", "gc.before_purge")
"""Points that are tried on the other stores and databases too."""


@pytest.fixture(
    params=[
        *(("sqlite", "file", point) for point in POINTS),
        *(("postgres", "file", point) for point in EVERYWHERE[:1]),
        *(("sqlite", "s3", point) for point in EVERYWHERE[:1]),
        *(later(("postgres", "file", point)) for point in EVERYWHERE[1:]),
        *(later(("sqlite", "s3", point)) for point in EVERYWHERE[1:]),
    ],
    ids="-".join,
)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str, str]:
    """Catalog URL, store URL, point."""
    database, medium, point = request.param
    catalog_url = request.getfixturevalue("catalog_url" if database == "sqlite" else "postgres_catalog_url")
    if medium == "file":
        return catalog_url, (tmp_path / "store").as_uri(), point
    return catalog_url, f"{request.getfixturevalue('s3_bucket')}/store", point


def test_killed_anywhere_and_finished_by_the_next(case: tuple[str, str, str], tmp_path: Path) -> None:
    catalog_url, store_url, point = case
    held = Holdings(Catalog.open(catalog_url), ArtifactStore.open(store_url))
    held.catalog.retention.add("all", DAY)
    loose = [held.make(f"loose {n}", age=2 * DAY) for n in range(5)]
    tensor, shared = held.make("tensor", "blob", age=2 * DAY), held.make("shared", "blob", age=2 * DAY)
    dead = held.make("dead", "weights", members={"t": tensor, "s": shared})
    live = held.make("live", "weights", members={"s": shared})
    source = held.make("source", age=2 * DAY)
    pinned = held.make("pinned", "image", used=[source], age=2 * DAY)
    for ref in (tensor, shared, dead, live):
        held.age(ref, 2 * DAY)
    held.catalog.weights.publish("toy-card", "net", live.digest)
    held.catalog.pins.add(pinned.digest, "keep", with_inputs=True)
    kept, doomed = [live, shared, source, pinned], [*loose, dead, tensor]

    marker = tmp_path / "fired"
    fault = point if ":" in point else f"{point}:kill"
    assert collect_until_killed(catalog_url, store_url, fault, marker) == -signal.SIGKILL
    assert marker.read_text() == f"{point.partition(':')[0]}\n", "the fault must have fired"
    (killed,) = held.catalog.collections.list()
    assert killed.state == "running", "nobody has told the catalog"
    for ref in kept:
        assert held.store.get(ref.digest), "and meanwhile nothing is lost"

    done = succeed(held.catalog, held.store)
    assert done.id == killed.id
    counted = {
        name: done.counts[name] for name in ("collected", "collected_bytes", "removed", "removed_bytes")
    }
    size = sum(ref.size for ref in doomed)
    assert counted == {"collected": 7, "collected_bytes": size, "removed": 7, "removed_bytes": size}
    assert held.states(*kept) == ["present"] * len(kept)
    assert held.states(*doomed) == ["tombstone"] * len(doomed)
    assert list(held.store.trashed()) == []
    report = Report()
    assert list(fsck(held.catalog, held.store, report=report)) == []
    assert report.clean
    held.catalog.close()
