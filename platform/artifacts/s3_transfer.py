"""Large objects on S3, part by part and in bounded memory: up, down, and from one name to another."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, BinaryIO

from mutoscope.platform import faults
from mutoscope.platform.artifacts.full_reads import read_fully
from mutoscope.platform.artifacts.s3_client import S3Client, wait
from mutoscope.platform.artifacts.spool import changed
from mutoscope.platform.errors import MutoscopeError

MIB = 1 << 20
PART_BYTES = 16 * MIB
MOST_PARTS = 10_000
"""S3's own limit."""

COPY_PART_BYTES = 512 * MIB
IN_FLIGHT = 4
"""Parts under way at a time; each is held in memory."""

BLOCK_BYTES = 8 * MIB
"""Of a download; two are held in memory."""


@dataclass(frozen=True, slots=True)
class Target:
    """The object to be.

    Attributes:
        digest: hex SHA-256 of its bytes; empty where they are not known here, or have no name of their own.
        headers: content type, metadata and the like, as the client's methods take them.
        condition: ``{"IfNoneMatch": "*"}`` where an object of that name must not be replaced.
    """

    key: str
    digest: str
    headers: Mapping[str, Any]
    condition: Mapping[str, str]


def part_bytes(size: int, smallest: int = PART_BYTES) -> int:
    """Bytes of each part but the last, so that an object of `size` has at most `MOST_PARTS`."""
    needed = -(-size // MOST_PARTS)
    return max(smallest, -(-needed // MIB) * MIB)


def checksum(data: bytes) -> str:
    """A SHA-256 as S3 writes it."""
    return encoded(hashlib.sha256(data).digest())


def encoded(digest: bytes) -> str:
    return base64.b64encode(digest).decode()


def put(client: S3Client, target: Target, body: bytes) -> None:
    """Store a small object in one request. The server checks a SHA-256 of what arrives.

    Raises:
        StoreUnwritable: the server refuses; or the body is not what the target's digest says.
        FileExistsError: the condition does not hold.
    """
    found = hashlib.sha256(body)
    if target.digest and found.hexdigest() != target.digest:
        raise changed(target.digest)
    faults.hit("store.before_commit")
    client.call(
        "put_object", target.key,
        Body=body, ChecksumSHA256=encoded(found.digest()), **target.headers, **target.condition,
    )  # fmt: skip


def upload(client: S3Client, target: Target, parts: Iterable[bytes]) -> None:
    """Store an object of many parts, each checked by the server on arrival. It appears with the last request.

    Raises:
        StoreUnwritable: the server refuses; or the parts do not hash to the target's digest, because the
            file they come from has changed since it was hashed.
        FileExistsError: the condition does not hold.
    """

    def send(upload_id: str) -> Iterator[Future[Mapping[str, Any]]]:
        whole = hashlib.sha256()
        for number, part in enumerate(parts, 1):
            whole.update(part)
            arguments = {"UploadId": upload_id, "PartNumber": number, "ChecksumSHA256": checksum(part)}
            yield client.submit("upload_part", target.key, Body=part, **arguments)
            faults.hit("store.mid_multipart")
        if target.digest and whole.hexdigest() != target.digest:
            raise changed(target.digest)

    _assembled(client, target, send, ChecksumAlgorithm="SHA256")


def copy(client: S3Client, source: str, size: int, target: Target) -> None:
    """Copy within the bucket, by the server; no byte passes through here. Raises FileNotFoundError."""

    def send(upload_id: str) -> Iterator[Future[Mapping[str, Any]]]:
        step = part_bytes(size, COPY_PART_BYTES)
        for number, start in enumerate(range(0, size, step), 1):
            arguments = {
                "UploadId": upload_id,
                "PartNumber": number,
                "CopySource": {"Bucket": client.bucket, "Key": source},
                "CopySourceRange": f"bytes={start}-{min(start + step, size) - 1}",
            }
            yield client.submit("upload_part_copy", target.key, **arguments)

    _assembled(client, target, send)


def _assembled(
    client: S3Client,
    target: Target,
    send: Callable[[str], Iterator[Future[Mapping[str, Any]]]],
    **options: str,
) -> None:
    """Create, send, complete; whatever fails in between aborts the upload, so that no part stays behind."""
    created = client.call("create_multipart_upload", target.key, **target.headers, **options)
    upload_id = created["UploadId"]
    pending: deque[Future[Mapping[str, Any]]] = deque()
    done: list[Mapping[str, Any]] = []
    try:
        sending = send(upload_id)
        while (future := next(sending, None)) is not None:
            pending.append(future)
            if len(pending) == IN_FLIGHT:
                done.append(wait(pending.popleft()))
        done += [wait(future) for future in pending]
        faults.hit("store.before_commit")
        listed = {"Parts": [_part(number, answer) for number, answer in enumerate(done, 1)]}
        client.call(
            "complete_multipart_upload", target.key,
            UploadId=upload_id, MultipartUpload=listed, **target.condition,
        )  # fmt: skip
    except BaseException:
        for future in pending:
            future.cancel()
        # What cannot be aborted now is found by `discard_unfinished`.
        with contextlib.suppress(MutoscopeError, OSError):
            client.call("abort_multipart_upload", target.key, UploadId=upload_id)
        raise


def _part(number: int, answer: Mapping[str, Any]) -> Mapping[str, Any]:
    said = answer.get("CopyPartResult", answer)
    sums = {name: said[name] for name in ("ChecksumSHA256",) if said.get(name)}
    return {"PartNumber": number, "ETag": said["ETag"], **sums}


class Download(io.RawIOBase):
    """An object as a stream: in blocks, the next of which is under way while one is read. Each is a request
    of its own, so a connection that breaks costs one block.

    Raises FileNotFoundError from the constructor when there is no such object.
    """

    def __init__(self, client: S3Client, key: str) -> None:
        super().__init__()
        self._client, self._key = client, key
        first = self._request(0)
        try:
            answer = wait(first)
        except EOFError:
            self.size, self._block = 0, memoryview(b"")
        else:
            self._block = memoryview(answer["Body"])
            self.size = total_bytes(answer)
        self._next: Future[Mapping[str, Any]] | None = None
        self._end = len(self._block)
        self._ask()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        target = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        if not self._block and self._next is not None:
            answer, self._next = wait(self._next), None
            self._block = memoryview(answer["Body"])
            self._end += len(self._block)
            self._ask()
        count = min(len(target), len(self._block))
        target[:count], self._block = self._block[:count], self._block[count:]
        return count

    def close(self) -> None:
        if not self.closed and self._next is not None:
            self._next.cancel()
        super().close()

    def _ask(self) -> None:
        if self._end < self.size:
            self._next = self._request(self._end)

    def _request(self, start: int) -> Future[Mapping[str, Any]]:
        return self._client.submit("get_object", self._key, Range=f"bytes={start}-{start + BLOCK_BYTES - 1}")


def total_bytes(answer: Mapping[str, Any]) -> int:
    """Of the object that an answer to GET holds a part of."""
    _, slash, total = str(answer.get("ContentRange", "")).rpartition("/")
    return int(total) if slash else int(answer["ContentLength"])


def file_parts(source: BinaryIO, step: int) -> Iterator[bytes]:
    """A file from its beginning in parts of exactly `step` bytes, the last excepted."""
    source.seek(0)
    while part := read_fully(source, step):
        yield part


def memory_parts(data: memoryview, step: int) -> Iterator[bytes]:
    return (bytes(data[start : start + step]) for start in range(0, len(data), step))
