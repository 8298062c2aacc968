"""Credentials that change under a store that is open: a file rewritten by a sidecar, a role assumed anew."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.errors import StoreUnavailable, StoreUnwritable
from mutoscope.platform.ids import new_id, sha256
from tests.artifacts.test_s3 import DATA, put
from tests.support.buckets import Bucket
from tests.support.servers import Credentials, S3Server

WITHDRAWN = Credentials("withdrawn-key", "withdrawn-secret")
"""Unknown to the server, as a key is after its rotation."""


@pytest.fixture
def credentials_file(
    s3_server: S3Server, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Path:
    """Where the process finds its credentials; nowhere else."""
    for name in WITHDRAWN.environment(s3_server.endpoint):
        if name.endswith(("KEY_ID", "ACCESS_KEY")):
            monkeypatch.delenv(name)
    path = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return path


def write(path: Path, credentials: Credentials) -> None:
    path.write_text(
        f"[default]\naws_access_key_id = {credentials.access_key}\n"
        f"aws_secret_access_key = {credentials.secret_key}\n"
    )


def test_credentials_are_read_again_when_they_are_refused(
    s3_server: S3Server, bucket: Bucket, credentials_file: Path
) -> None:
    write(credentials_file, WITHDRAWN)
    store = ArtifactStore.open(f"s3://{bucket.name}/{new_id()}")
    for _ in range(2):
        with pytest.raises(StoreUnwritable, match="does not accept these credentials"):
            put(store)
    write(credentials_file, s3_server.writer)
    put(store)
    assert store.get(sha256(DATA)) == DATA


def test_a_crowd_of_requests_reads_them_once(
    s3_server: S3Server, bucket: Bucket, credentials_file: Path
) -> None:
    write(credentials_file, WITHDRAWN)
    store = ArtifactStore.open(f"s3://{bucket.name}/{new_id()}")
    with pytest.raises(StoreUnwritable):
        put(store)
    write(credentials_file, s3_server.writer)
    filesystem = store._backend.client.filesystem  # type: ignore[attr-defined]
    refused = filesystem.s3
    contents = [b"%d" % n for n in range(16)]
    with ThreadPoolExecutor(8) as pool:
        digests = list(pool.map(lambda data: put(store, data).digest, contents))
    assert digests == [sha256(data) for data in contents]
    assert set(store.digests()) == set(digests)
    assert filesystem.s3 is not refused


def test_the_environment_counts_too(
    s3_server: S3Server, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in WITHDRAWN.environment(s3_server.endpoint).items():
        monkeypatch.setenv(name, value)
    store = ArtifactStore.open(f"s3://{bucket.name}/{new_id()}")
    with pytest.raises(StoreUnavailable):
        store.get(sha256(DATA))
    for name, value in s3_server.writer.environment(s3_server.endpoint).items():
        monkeypatch.setenv(name, value)
    put(store)
    assert store.get(sha256(DATA)) == DATA
