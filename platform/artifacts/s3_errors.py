"""What an S3 server's refusal means, and what to do about it, in one line.

Of an exception two things are asked: would it pass (`is_transient`), and may new credentials help
(`is_about_credentials`)? What remains is worded by `explained`.
"""

from __future__ import annotations

import asyncio
import builtins
import os
import socket
from dataclasses import dataclass

from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from mutoscope.platform.artifacts.urls import scrubbed
from mutoscope.platform.errors import (
    InvalidInput,
    MutoscopeError,
    StoreAway,
    StoreUnavailable,
    StoreUnwritable,
)

_WRITES = {
    "put_object": "s3:PutObject",
    "copy_object": "s3:PutObject",
    "create_multipart_upload": "s3:PutObject",
    "upload_part": "s3:PutObject",
    "upload_part_copy": "s3:PutObject",
    "complete_multipart_upload": "s3:PutObject",
    "abort_multipart_upload": "s3:AbortMultipartUpload",
    "delete_object": "s3:DeleteObject",
}
_READS = {
    "get_object": "s3:GetObject",
    "head_object": "s3:GetObject",
    "head_bucket": "s3:ListBucket",
    "list_objects_v2": "s3:ListBucket",
    "list_multipart_uploads": "s3:ListBucketMultipartUploads",
}
"""The permission that each request needs, as policies name it."""

ABSENT = frozenset({"NoSuchKey", "404"})
EXISTS = frozenset({"PreconditionFailed", "412"})
PAST_THE_END = frozenset({"InvalidRange", "416"})
_TRANSIENT = frozenset({
    "BadDigest", "XAmzContentSHA256Mismatch",  # the bytes changed on their way
    "ConditionalRequestConflict", "OperationAborted",
    "InternalError", "RequestTimeout", "ServiceUnavailable", "SlowDown", "Throttling",
})  # fmt: skip
_TRANSIENT_STATUS = frozenset({408, 429, 500, 502, 503, 504})
_CREDENTIALS = frozenset({
    "ExpiredToken", "ExpiredTokenException", "InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch",
    "TokenRefreshRequired",
})  # fmt: skip
_REGION = frozenset({
    "301", "307", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect",
    "TemporaryRedirect",
})  # fmt: skip
_FORBIDDEN = frozenset({"403", "AccessDenied", "AllAccessDisabled", "AccountProblem"})
_UNREACHED = (
    boto.ConnectionError, boto.HTTPClientError, boto.IncompleteReadError,
    builtins.ConnectionError, asyncio.TimeoutError, socket.gaierror,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked of whom.

    Attributes:
        method: the client's name of it, such as ``put_object``.
        key: of the object, empty for requests about the bucket.
        endpoint: URL, without secrets.
    """

    method: str
    bucket: str
    key: str
    endpoint: str

    @property
    def action(self) -> str:
        return _WRITES.get(self.method) or _READS.get(self.method, self.method)

    @property
    def error(self) -> type[MutoscopeError]:
        return StoreUnwritable if self.method in _WRITES else StoreUnavailable

    @property
    def place(self) -> str:
        return f"s3://{self.bucket}/{self.key}" if self.key else f"s3://{self.bucket}"


def code(error: BaseException) -> str:
    """S3's own word for a refusal, such as ``NoSuchKey``; the HTTP status where an answer has no body, as to
    HEAD; empty for other errors."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, boto.ClientError) else ""


def is_transient(error: BaseException) -> bool:
    """Whether the same request may succeed a little later."""
    if isinstance(error, boto.ClientError):
        return code(error) in _TRANSIENT or _status(error) in _TRANSIENT_STATUS
    return isinstance(error, _UNREACHED)


def is_about_credentials(error: BaseException) -> bool:
    """Whether other credentials may be accepted."""
    return code(error) in _CREDENTIALS


def explained(error: BaseException, request: Request) -> MutoscopeError:
    """The error to raise for one that stands."""
    if isinstance(error, boto.ClientError):
        return request.error(_refusal(error, request))
    if isinstance(error, boto.NoCredentialsError | boto.PartialCredentialsError):
        return request.error(
            f"no AWS credentials for s3://{request.bucket}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
            "or AWS_PROFILE, or give this machine a role"
        )
    if isinstance(error, ResponseParserError):
        return request.error(
            f"{request.endpoint} does not answer as an S3 server does: check AWS_ENDPOINT_URL"
        )
    if isinstance(error, ValueError | boto.BotoCoreError):  # an endpoint, region or profile that is none
        return InvalidInput(
            f"S3 cannot be used ({reason(error)}): check AWS_ENDPOINT_URL, AWS_DEFAULT_REGION and AWS_PROFILE"
        )
    return request.error(f"{request.action} on {request.place} failed ({reason(error)})")


def gave_up(error: BaseException, request: Request, seconds: float) -> MutoscopeError:
    """The error to raise when a transient one lasted."""
    return StoreAway(
        f"the artifact store s3://{request.bucket} is not available at {request.endpoint} ({reason(error)}): "
        f"tried for {seconds:.0f} s (MUTOSCOPE_STORE_DEADLINE_SECONDS says how long); "
        "check that server and AWS_ENDPOINT_URL"
    )


def reason(error: BaseException) -> str:
    """The cause in few words, without secrets."""
    if isinstance(error, boto.ClientError):
        return code(error) or f"HTTP {_status(error)}"
    if isinstance(error, asyncio.TimeoutError | boto.ReadTimeoutError | boto.ConnectTimeoutError):
        return "no answer in time"
    # botocore and aiohttp wrap what the system said: "Connection refused", "Name or service not known".
    root = _innermost(error)
    number = root.errno if isinstance(root, OSError) else None
    if number is not None and number > 0:  # negative: the resolver's, which has words of its own
        return os.strerror(number)
    return _shown(str(getattr(root, "strerror", None) or root) or type(root).__name__)


def _innermost(error: BaseException) -> BaseException:
    seen = [error]
    while (following := _wrapped(seen[-1])) is not None and following not in seen:
        seen.append(following)
    return seen[-1]


def _wrapped(error: BaseException) -> BaseException | None:
    inner = getattr(error, "kwargs", {}).get("error") or getattr(error, "os_error", None) or error.__cause__
    return inner if isinstance(inner, BaseException) else None


def _refusal(error: boto.ClientError, request: Request) -> str:
    name = code(error)
    if name == "NoSuchBucket" or (name in ABSENT and not request.key):
        return (
            f"the bucket {request.bucket} does not exist at {request.endpoint}: create it with "
            f"`aws --endpoint-url {request.endpoint} s3 mb s3://{request.bucket}`, "
            "or set MUTOSCOPE_STORE_URL to another"
        )
    if name in _CREDENTIALS:
        return (
            f"{request.endpoint} does not accept these credentials for s3://{request.bucket} ({name}): "
            "renew AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile or role they come from"
        )
    if name in _REGION:
        return f"the bucket {request.bucket} is in another region ({name}): set {_region_remedy(error)}"
    if name in _FORBIDDEN:
        return (
            f"{request.endpoint} denies {request.action} on {request.place}: grant it, and s3:ListBucket, "
            "to the identity in use, or set other credentials"
        )
    message = _shown(str(error.response.get("Error", {}).get("Message", "")))
    return f"{request.endpoint} refuses {request.action} on {request.place} ({name}: {message})"


def _region_remedy(error: boto.ClientError) -> str:
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    region = error.response.get("Error", {}).get("Region") or headers.get("x-amz-bucket-region")
    return f"AWS_DEFAULT_REGION={region}" if region else "AWS_DEFAULT_REGION to the region of the bucket"


def _status(error: boto.ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _shown(text: str) -> str:
    return " ".join(scrubbed(word.strip("\"'")) if "://" in word else word for word in text.split())
