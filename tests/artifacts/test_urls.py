"""What is shown of a store's URL."""

from __future__ import annotations

import pytest

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.artifacts.urls import holds_secret, scrubbed
from mutoscope.platform.errors import InvalidInput

SECRET = "hunter2"


@pytest.mark.parametrize(
    "url",
    ["file:///a/b", "/a/b", "memory://x", "memory://", "s3://bucket/a/b", "http://127.0.0.1:8333"],
)
def test_a_url_without_secrets_is_shown_as_it_is(url: str) -> None:
    assert scrubbed(url) == url
    assert not holds_secret(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"sftp://user:{SECRET}@host:22/a", "sftp://***@host:22/a"),
        (f"sftp://{SECRET}@host/a", "sftp://***@host/a"),
        (f"s3://key:p@ss{SECRET}@bucket/a", "s3://***@bucket/a"),
        (f"s3://bucket/a?secret={SECRET}", "s3://bucket/a?***"),
        (f"s3://bucket/a#{SECRET}", "s3://bucket/a"),
    ],
)
def test_secrets_are_not_shown(url: str, shown: str) -> None:
    assert scrubbed(url) == shown
    assert holds_secret(url)


@pytest.mark.parametrize(
    "url",
    [
        f"s3://key:{SECRET}@bucket/a",
        f"s3://bucket/a?aws_secret_access_key={SECRET}",
        f"s3://bucket/a#{SECRET}",
        f"s3a://{SECRET}@bucket",
        f"nosuch://user:{SECRET}@host/a",
    ],
)
def test_a_store_with_a_secret_in_its_url_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        ArtifactStore.open(url)
    assert SECRET not in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("url", ["s3://", "s3:///a", "s3://B_cket", "s3://x"])
def test_a_url_without_a_bucket_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="names no bucket: use s3://bucket"):
        ArtifactStore.open(url)
