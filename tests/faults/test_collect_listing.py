"""A collection on S3 that goes beyond one page of a listing, in objects and in trash."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from mutoscope.platform.artifacts import ArtifactRef, ArtifactStore
from mutoscope.platform.catalog import Catalog
from tests.support.collecting import DAY, Holdings

COUNT = 1010
"""S3 lists a thousand names at a time."""


@pytest.mark.slow
def test_more_objects_than_a_listing_holds(catalog: Catalog, s3_bucket: str) -> None:
    held = Holdings(catalog, ArtifactStore.open(f"{s3_bucket}/store"))
    held.catalog.retention.add("blobs", DAY, kind="blob")

    def put(number: int) -> ArtifactRef:
        return held.store.put(f"{number}".encode(), kind="blob", media_type="text/plain")

    with ThreadPoolExecutor(8) as writers:
        refs = list(writers.map(put, range(COUNT)))
    catalog.runs.record_completed("import", generated={f"file:{n}": ref for n, ref in enumerate(refs)})
    for ref in refs:
        held.age(ref, 2 * DAY)
    counts = held.collect(grace=DAY).counts
    assert (counts["collected"], len(list(held.store.trashed()))) == (COUNT, COUNT)
    assert held.collect(grace=0.0).counts["removed"] == COUNT
    assert list(held.store.inventory()) == list(held.store.trashed()) == []
