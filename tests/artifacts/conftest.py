"""A bucket that the tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mutoscope.platform.artifacts import ArtifactStore
from tests.support import buckets
from tests.support.buckets import Bucket
from tests.support.servers import S3Server


@pytest.fixture(scope="module")
def bucket(s3_server: S3Server) -> Iterator[Bucket]:
    """One bucket, open; the process's environment names its server and credentials."""
    with buckets.opened(s3_server) as bucket:
        yield bucket


@pytest.fixture
def s3_store(bucket: Bucket) -> ArtifactStore:
    """An empty store in the bucket."""
    return bucket.store()
