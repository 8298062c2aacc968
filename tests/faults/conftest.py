"""Fixtures of the fault tests: a home whose leases run out quickly, and each kind of store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.places import BucketPlace, FolderPlace, Place
from tests.support.servers import S3Server
from tests.support.workshop import Workshop


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    """Short leases, so that a dead worker's run is soon free. Long enough that a busy machine does not lose
    them.
    """
    workshop = Workshop(tmp_path / "home", lease_seconds=2.0, heartbeat_seconds=0.2, max_attempts=2)
    yield workshop
    workshop.close()


@pytest.fixture(params=["file", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty store of each kind that many hosts can share, as seen from outside."""
    if request.param == "file":
        return FolderPlace(tmp_path / "store")
    bucket: str = request.getfixturevalue("s3_bucket")
    server: S3Server = request.getfixturevalue("s3_server")
    return BucketPlace(bucket, server.writer.environment(server.endpoint))
