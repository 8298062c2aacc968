"""A bucket of the test server, as the store and as others see it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import s3fs

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.artifacts.s3 import S3Backend
from mutoscope.platform.artifacts.s3_client import S3Client
from mutoscope.platform.ids import new_id
from tests.support.servers import S3Server


@dataclass(frozen=True, slots=True)
class Bucket:
    """One bucket for many tests, each with a prefix of its own: a client costs half a second to make.

    Attributes:
        client: as stores use it.
        objects: the same as others see it.
    """

    client: S3Client
    objects: s3fs.S3FileSystem

    @property
    def name(self) -> str:
        return self.client.bucket

    def store(self, prefix: str | None = None) -> ArtifactStore:
        """A store below a prefix, which nobody has used unless it is given."""
        prefix = f"tests/{new_id()}" if prefix is None else prefix
        return ArtifactStore(S3Backend(self.client, prefix), f"s3://{self.name}/{prefix}".rstrip("/"))

    def head(self, url: str) -> Mapping[str, Any]:
        """What the server says of an object, the checksum it keeps included."""
        key = url.removeprefix(f"s3://{self.name}/")
        return self.client.call("head_object", key, ChecksumMode="ENABLED")


@contextmanager
def opened(server: S3Server, **client: Any) -> Iterator[Bucket]:
    """A new bucket; meanwhile the process's environment names the server and its writer."""
    name = f"b-{new_id()}"
    server.create_bucket(name)
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in server.writer.environment(server.endpoint).items():
            patch.setenv(variable, value)
        bucket = Bucket(
            S3Client(name, **{"deadline_seconds": 60, **client}),
            s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False),
        )
        # Now, lest they connect in a test that points the environment elsewhere.
        bucket.client.call("head_bucket")
        bucket.objects.connect()
        yield bucket
