"""Objects in an S3 bucket, through s3fs.

A put asks first (HEAD) and sends the body only if it must: two requests for a new artifact, one for a
duplicate. Objects appear with the last request of an upload, under a condition that keeps two writers of the
same artifact from replacing each other's. The server checks a SHA-256 of what it receives and keeps it with
the object, next to the content type that lets a browser show it.

There are no renames on S3: a move is a copy by the server, then a delete.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, cast

from mutoscope.platform import faults
from mutoscope.platform.artifacts import layout, s3_transfer
from mutoscope.platform.artifacts.backend import Buffer, Entry, Facts, discard_stale
from mutoscope.platform.artifacts.s3_client import S3Client
from mutoscope.platform.artifacts.s3_transfer import Download, Target
from mutoscope.platform.artifacts.spool import Spooled
from mutoscope.platform.artifacts.urls import holds_secret, scrubbed
from mutoscope.platform.errors import InvalidInput, InvalidParameter
from mutoscope.platform.ids import new_id

SINGLE_BYTES = s3_transfer.PART_BYTES
"""Up to this size an object goes up in one request."""

COPY_BYTES = 1 << 30
"""Up to this size an object is copied in one request. S3's own limit is 5 GB; the rest is time to answer."""

LONGEST_LINK_S = 7 * 24 * 3600
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_KEPT_HEADERS = ("ContentType", "CacheControl", "Metadata")
_FOREVER = "max-age=31536000, immutable"


class S3Backend:
    """A store in a bucket, or below a prefix in one: ``runs/store``, empty for the whole bucket."""

    def __init__(self, client: S3Client, prefix: str) -> None:
        self.client = client
        self._prefix = "".join(f"{part}/" for part in prefix.split("/") if part)
        self.root = f"{client.bucket}/{self._prefix}".rstrip("/")
        self._bucket_seen = False

    @classmethod
    def at(cls, url: str, *, deadline_seconds: float) -> S3Backend:
        """The store at ``s3://bucket`` or ``s3://bucket/prefix``.

        Args:
            deadline_seconds: see `S3Client`.

        Raises:
            InvalidInput: for a URL of any other form, and for one that holds credentials.
        """
        if holds_secret(url):
            raise InvalidInput(
                f"store_url={scrubbed(url)!r} holds credentials or options: set AWS_ACCESS_KEY_ID, "
                "AWS_SECRET_ACCESS_KEY, AWS_PROFILE or AWS_ENDPOINT_URL instead, and keep the URL to "
                "s3://bucket/prefix"
            )
        bucket, _, prefix = url.partition("://")[2].partition("/")
        if not _BUCKET.fullmatch(bucket):
            raise InvalidInput(f"store_url={url!r} names no bucket: use s3://bucket or s3://bucket/prefix")
        return cls(S3Client(bucket, deadline_seconds=deadline_seconds), prefix)

    def matches(self, name: str, data: Buffer, facts: Facts) -> bool | None:
        return self._holds(name, memoryview(data).nbytes, facts.digest)

    def holds(self, name: str, source: BinaryIO, facts: Facts) -> bool | None:
        return self._holds(name, source.seek(0, io.SEEK_END), facts.digest)

    def write(self, name: str, data: Buffer, facts: Facts, *, replace: bool) -> None:
        view = memoryview(data).cast("B")
        target = self._target(name, facts, replace)
        if len(view) <= SINGLE_BYTES:
            s3_transfer.put(self.client, target, bytes(view))
        else:
            step = s3_transfer.part_bytes(len(view))
            s3_transfer.upload(self.client, target, s3_transfer.memory_parts(view, step))
        faults.hit("store.after_commit")

    def upload(self, name: str, source: BinaryIO, facts: Facts, *, replace: bool) -> None:
        size = source.seek(0, io.SEEK_END)
        step = max(SINGLE_BYTES, s3_transfer.part_bytes(size))
        parts, target = s3_transfer.file_parts(source, step), self._target(name, facts, replace)
        if size <= SINGLE_BYTES:
            s3_transfer.put(self.client, target, next(parts, b""))
        else:
            s3_transfer.upload(self.client, target, parts)
        faults.hit("store.after_commit")

    def stage(self, origin: BinaryIO | None = None) -> Spooled:
        return Spooled(self, origin)

    def open(self, name: str) -> tuple[BinaryIO, int]:
        stream = Download(self.client, self._key(name))
        return cast(BinaryIO, stream), stream.size

    def read(self, name: str) -> bytes:
        return cast(bytes, self.client.call("get_object", self._key(name))["Body"])

    def read_range(self, name: str, start: int, length: int) -> bytes:
        if not length:
            if self.entry(name) is None:
                raise FileNotFoundError(name)
            return b""
        try:
            answer = self.client.call(
                "get_object", self._key(name), Range=f"bytes={start}-{start + length - 1}"
            )
        except EOFError:
            return b""
        return cast(bytes, answer["Body"])

    def entry(self, name: str) -> Entry | None:
        try:
            head = self.client.call("head_object", self._key(name))
        except FileNotFoundError:
            self._check_bucket()
            return None
        self._bucket_seen = True
        return Entry(name, int(head["ContentLength"]), _seconds(head["LastModified"]))

    def entries(self, prefix: str) -> Iterator[Entry]:
        more: Mapping[str, str] = {}
        while True:
            page = self.client.call("list_objects_v2", Prefix=f"{self._key(prefix)}/", **more)
            for item in page.get("Contents", ()):
                name = str(item["Key"]).removeprefix(self._prefix)
                yield Entry(name, int(item["Size"]), _seconds(item["LastModified"]))
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def copy(self, source: str, target: str) -> None:
        head = self.client.call("head_object", self._key(source))
        size = int(head["ContentLength"])
        if size <= COPY_BYTES:
            origin = {"Bucket": self.client.bucket, "Key": self._key(source)}
            self.client.call("copy_object", self._key(target), CopySource=origin)
            return
        kept = {name: head[name] for name in _KEPT_HEADERS if head.get(name)}
        s3_transfer.copy(self.client, self._key(source), size, Target(self._key(target), "", kept, {}))

    def move(self, source: str, target: str) -> None:
        self.copy(source, target)
        faults.hit("store.move.copied")
        self.client.call("delete_object", self._key(source))
        faults.hit("store.moved")

    def remove(self, name: str) -> bool:
        if self.entry(name) is None:  # S3 deletes what is not there without a word
            return False
        self.client.call("delete_object", self._key(name))
        return True

    def discard_unfinished(self, before: float) -> int:
        count = discard_stale(self, before)
        for key, upload_id in self._unfinished(before):
            with contextlib.suppress(FileNotFoundError):
                self.client.call("abort_multipart_upload", key, UploadId=upload_id)
                count += 1
        return count

    def url(self, name: str) -> str:
        return f"s3://{self.root}/{name}"

    def presigned_url(self, name: str, seconds: int) -> str | None:
        if not 1 <= seconds <= LONGEST_LINK_S:
            raise InvalidParameter("seconds", seconds, f"use 1 to {LONGEST_LINK_S} (a week, as S3 allows)")
        return self.client.presigned_url(self._key(name), seconds)

    def path(self, name: str) -> Path | None:
        return None

    def probe(self) -> None:
        key = self._key(f"{layout.TMP}/{new_id()}")
        self.client.call("put_object", key, Body=b"mutoscope")
        self.client.call("delete_object", key)
        with contextlib.suppress(FileExistsError):
            readme = self._target(layout.README_NAME, Facts("text/plain; charset=utf-8"), replace=False)
            s3_transfer.put(self.client, readme, layout.README.encode())

    def _holds(self, name: str, size: int, digest: str) -> bool | None:
        try:
            return self._compare(name, size, digest)
        except FileNotFoundError:
            return None

    def _compare(self, name: str, size: int, digest: str) -> bool:
        head = self.client.call("head_object", self._key(name), ChecksumMode="ENABLED")
        if head["ContentLength"] != size:
            return False
        kept = str(head.get("ChecksumSHA256", ""))
        if kept and "-" not in kept:  # with a dash: of the parts, not of the whole
            return kept == s3_transfer.encoded(bytes.fromhex(digest))
        if head.get("Metadata", {}).get("sha256") == digest:
            return True
        # Not written by us: overwritten, or copied here by a tool that dropped the metadata.
        return self._hash(name) == digest

    def _hash(self, name: str) -> str:
        with Download(self.client, self._key(name)) as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()

    def _target(self, name: str, facts: Facts, replace: bool) -> Target:
        headers: dict[str, Any] = {"ContentType": facts.media_type}
        if facts.digest:
            headers |= {"CacheControl": _FOREVER, "Metadata": {"sha256": facts.digest, "kind": facts.kind}}
        else:
            headers["CacheControl"] = "no-cache"
        if facts.media_type == "text/plain":
            headers["ContentType"] += "; charset=utf-8"
        return Target(self._key(name), facts.digest, headers, {} if replace else {"IfNoneMatch": "*"})

    def _check_bucket(self) -> None:
        """Once: the answer to a HEAD does not tell a missing bucket from a missing object."""
        if not self._bucket_seen:
            self.client.call("head_bucket")
            self._bucket_seen = True

    def _unfinished(self, before: float) -> Iterator[tuple[str, str]]:
        more: Mapping[str, str] = {}
        while True:
            page = self.client.call("list_multipart_uploads", Prefix=self._prefix, **more)
            for upload in page.get("Uploads", ()):
                if _seconds(upload["Initiated"]) < before:
                    yield str(upload["Key"]), str(upload["UploadId"])
            if not page.get("IsTruncated"):
                return
            more = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}

    def _key(self, name: str) -> str:
        return f"{self._prefix}{name}"


def _seconds(when: datetime) -> float:
    return when.timestamp()
