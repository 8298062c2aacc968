"""A collector without any grace, beside writers of the very artifacts it collects, and readers of them.

`MUTOSCOPE_RACES=20 pytest tests/faults/test_collect_race.py` repeats each race.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.custody.fsck import Report, fsck
from tests.support import collectors, racers
from tests.support.collecting import DAY, Holdings

ROUNDS = int(os.environ.get("MUTOSCOPE_RACES", "1"))
KEYS = 16
READERS = 2
COLLECTORS = 2


@pytest.fixture(params=["sqlite-file", "postgres-s3"])
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """Of a catalog and a store."""
    if request.param == "sqlite-file":
        return request.getfixturevalue("catalog_url"), (tmp_path / "store").as_uri()
    bucket = request.getfixturevalue("s3_bucket")
    return request.getfixturevalue("postgres_catalog_url"), f"{bucket}/store"


def environment() -> Mapping[str, str]:
    """What a process needs to talk to the S3 server."""
    return {name: value for name, value in os.environ.items() if name.startswith("AWS_")}


@pytest.mark.parametrize("round_", range(ROUNDS), ids=lambda n: f"round{n}")
def test_nothing_acknowledged_is_lost(urls: tuple[str, str], tmp_path: Path, round_: int) -> None:
    held = Holdings(Catalog.open(urls[0]), ArtifactStore.open(urls[1]))
    held.catalog.retention.add("latents", DAY, kind="latent")
    names = [f"key {n}" for n in range(KEYS)]
    refs = [
        held.store.put(collectors.content(name), kind="latent", media_type="application/octet-stream")
        for name in names
    ]
    never_wanted = held.make("never wanted", age=2 * DAY)
    held.catalog.runs.record_completed("engine", generated={ref.digest: ref for ref in refs})
    for ref in refs:
        held.age(ref, 2 * DAY)
    finished = tmp_path / "finished"
    finished.mkdir()

    orders = [names[n * 2 :] + names[: n * 2] for n in range(collectors.WRITERS)]
    roles = [
        *(("write", order) for order in orders),
        *(("read", names) for _ in range(READERS)),
        *(("collect", names) for _ in range(COLLECTORS)),
    ]
    outcomes = racers.race(
        collectors.play, [(role, *urls, given, str(finished), environment()) for role, given in roles]
    )

    recorded = {digest for outcome in outcomes for digest in outcome} & {ref.digest for ref in refs}
    assert recorded == {ref.digest for ref in refs}, "every writer was told that its artifacts are recorded"
    held.collect(grace=0.0)
    held.collect(grace=0.0)
    assert held.states(*refs) == ["present"] * KEYS
    for name, ref in zip(names, refs, strict=True):
        assert held.store.get(ref.digest) == collectors.content(name)
    assert held.states(never_wanted) == ["tombstone"], "and the collector did collect"
    report = Report()
    assert list(fsck(held.catalog, held.store, report=report)) == []
    assert report.clean
    held.catalog.close()
