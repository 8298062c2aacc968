"""Where a store lives, as somebody sees it who goes past the store: to damage what it holds, and to look for
leftovers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import botocore.session

from mutoscope.platform.artifacts import layout

Change = Callable[[bytes], bytes]


class Place(Protocol):
    """A medium behind the store's back."""

    url: str
    environment: Mapping[str, str]
    """What a process needs to reach it."""

    def overwrite(self, digest: str, change: Change) -> None:
        """Make an object hold other bytes, as somebody's tool would."""
        ...

    def rot(self, digest: str, change: Change) -> None:
        """The same in silence: the medium goes on saying of it what it said before."""
        ...

    def lose(self, digest: str) -> None:
        """Remove an object."""
        ...

    def unfinished(self) -> int:
        """Writes that began and never ended, as far as they left anything."""
        ...


class FolderPlace:
    """A folder."""

    def __init__(self, folder: Path) -> None:
        self.url, self._folder = folder.as_uri(), folder
        self.environment: Mapping[str, str] = {}

    def overwrite(self, digest: str, change: Change) -> None:
        path = self._path(digest)
        path.chmod(0o644)
        path.write_bytes(change(path.read_bytes()))

    rot = overwrite

    def lose(self, digest: str) -> None:
        self._path(digest).unlink()

    def unfinished(self) -> int:
        return sum(path.is_file() for path in (self._folder / layout.TMP).rglob("*"))

    def _path(self, digest: str) -> Path:
        return self._folder / layout.object_name(digest)


class BucketPlace:
    """A bucket, through a client of its own.

    Args:
        environment: the endpoint and credentials, by the names that botocore reads.
    """

    def __init__(self, url: str, environment: Mapping[str, str]) -> None:
        self.url, self._bucket = url, url.removeprefix("s3://")
        self.environment = environment
        self._client = _client(**environment)

    def overwrite(self, digest: str, change: Change) -> None:
        found = self._client.get_object(**self._named(digest))
        self._client.put_object(**self._named(digest), Body=change(found["Body"].read()))

    def rot(self, digest: str, change: Change) -> None:
        found = self._client.get_object(**self._named(digest))
        kept = {name: found[name] for name in ("ContentType", "Metadata")}
        self._client.put_object(**self._named(digest), Body=change(found["Body"].read()), **kept)

    def lose(self, digest: str) -> None:
        self._client.delete_object(**self._named(digest))

    def unfinished(self) -> int:
        uploads = self._client.list_multipart_uploads(Bucket=self._bucket).get("Uploads", [])
        listed = self._client.list_objects_v2(Bucket=self._bucket, Prefix=f"{layout.TMP}/")
        return len(uploads) + listed["KeyCount"]

    def _named(self, digest: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": layout.object_name(digest)}


@lru_cache
def _client(**environment: str) -> Any:
    return botocore.session.get_session().create_client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        region_name=environment["AWS_DEFAULT_REGION"],
    )
