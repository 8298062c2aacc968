"""Requests to an S3 server: repeated while that may help, then explained.

s3fs carries the requests; repeating them is ours, because its own and botocore's retries know no deadline.
No open answer survives a call, so every request can be repeated as a whole.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

import s3fs
from aiobotocore.session import AioSession
from aiohttp import ClientConnectionResetError

from mutoscope.platform.artifacts import s3_errors
from mutoscope.platform.artifacts.s3_errors import Request
from mutoscope.platform.artifacts.urls import scrubbed

logger = logging.getLogger(__name__)

T = TypeVar("T")

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0

_CONFIG = {
    # Seconds of one attempt: to connect, and to wait for the next bytes.
    "connect_timeout": 5,
    "read_timeout": 30,
    "max_pool_connections": 32,
    "retries": {"total_max_attempts": 1},
    # Uploads carry a SHA-256 of ours; what is downloaded is hashed as a whole by the reader.
    "request_checksum_calculation": "when_required",
    "response_checksum_validation": "when_required",
}


class S3Client:
    """One bucket at its server, which AWS_ENDPOINT_URL and the other variables of the AWS tools name.

    Args:
        deadline_seconds: how long a request is repeated, after its first failure, while the server does not
            answer or says that it is busy. An attempt under way is not cut off.
    """

    def __init__(self, bucket: str, *, deadline_seconds: float) -> None:
        self.bucket = bucket
        self._deadline_s = deadline_seconds
        self._renewing = asyncio.Lock()
        self._told = False  # of the outage under way
        self.filesystem = s3fs.S3FileSystem(
            skip_instance_cache=True, use_listings_cache=False, config_kwargs=_CONFIG
        )
        self.filesystem.retries = 1
        loop = self.filesystem.loop
        loop.call_soon_threadsafe(loop.set_exception_handler, _without_echoes)

    def call(self, method: str, key: str = "", **arguments: Any) -> Mapping[str, Any]:
        """The answer to a request about the bucket, or about an object in it. A body comes as bytes.

        Raises:
            FileNotFoundError: there is no such object.
            FileExistsError: there is one, and the request said that there must not be.
            EOFError: the range asked for begins after the object's end.
            StoreUnwritable, StoreUnavailable: the server refuses, or did not answer within the deadline.
        """
        return wait(self.submit(method, key, **arguments))

    def submit(self, method: str, key: str = "", **arguments: Any) -> Future[Mapping[str, Any]]:
        """`call`, under way."""
        return self._run(self._repeated(Request(method, self.bucket, key, self._endpoint()), arguments))

    def presigned_url(self, key: str, seconds: int) -> str:
        """A link that anybody may open for so long."""
        parameters = {"Bucket": self.bucket, "Key": key}

        async def sign() -> str:
            client = await self.filesystem.set_session()
            return str(await client.generate_presigned_url("get_object", parameters, ExpiresIn=seconds))

        try:
            return str(wait(self._run(sign())))
        except Exception as error:
            raise s3_errors.explained(
                error, Request("get_object", self.bucket, key, self._endpoint())
            ) from error

    def _run(self, coroutine: Any) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self.filesystem.loop)

    async def _repeated(self, request: Request, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        patience = _Patience(self._deadline_s)
        renewed = False
        while True:
            client = None
            try:
                client = await self.filesystem.set_session()
                answer = await self._once(request.method, request.key, arguments)
                self._told = False
                return answer
            except Exception as error:
                cause = await self._cause(error, request)
            _raise_expected(cause, request)
            if s3_errors.is_about_credentials(cause) and not renewed:
                renewed = True
                if await self._renew(client):
                    continue
            if not s3_errors.is_transient(cause):
                raise s3_errors.explained(cause, request) from cause
            self._tell(request, cause)
            if not await patience.pause():
                raise s3_errors.gave_up(cause, request, patience.spent) from cause

    async def _once(self, method: str, key: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        about = {"Bucket": self.bucket, **({"Key": key} if key else {})}
        answer: dict[str, Any] = await self.filesystem._call_s3(method, **about, **arguments)
        body = answer.get("Body")
        if body is not None:
            async with body:
                answer["Body"] = await body.read()
        return answer

    async def _cause(self, error: Exception, request: Request) -> BaseException:
        """What botocore said. The answer to a HEAD gives no reason: a refused one is asked again as a GET of
        one byte."""
        cause = _untranslated(error)
        if request.method == "head_object" and s3_errors.code(cause) == "403":
            try:
                await self._once("get_object", request.key, {"Range": "bytes=0-0"})
            except Exception as said:
                return _untranslated(said)
        return cause

    def _tell(self, request: Request, cause: BaseException) -> None:
        """Once an outage, whatever the number of requests that wait for its end."""
        if not self._told:
            self._told = True
            logger.warning(
                "the artifact store s3://%s is not available at %s (%s): trying for %.0f s",
                request.bucket, request.endpoint, s3_errors.reason(cause), self._deadline_s,
            )  # fmt: skip

    async def _renew(self, refused: Any) -> bool:
        """Read the credentials again; False when they are those that were refused."""
        async with self._renewing:
            if self.filesystem._s3 is not refused:  # another request was faster
                return True
            # Looked up before a client is made for them, which takes a hundred times longer.
            if await _credentials(AioSession()) == await _credentials(self.filesystem.session):
                return False
            await self.filesystem.set_session(refresh=True)
            return True

    def _endpoint(self) -> str:
        client = self.filesystem._s3
        if client is not None:
            return scrubbed(client.meta.endpoint_url)
        configured = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        return scrubbed(configured or "AWS")


class _Patience:
    """When to ask again. The clock starts with the first failure: a long upload that breaks off is tried
    again, however long it had taken."""

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._since: float | None = None
        self._pause_s = _FIRST_PAUSE_S

    @property
    def spent(self) -> float:
        """Seconds since the first failure."""
        return 0.0 if self._since is None else time.monotonic() - self._since

    async def pause(self) -> bool:
        """Wait before the next attempt; False when there is no time for one."""
        self._since = self._since or time.monotonic()
        left = self._deadline_s - self.spent
        if left <= 0:
            return False
        # Spread out, so that a crowd of workers does not come back all at once.
        await asyncio.sleep(min(left, self._pause_s * random.uniform(0.5, 1.0)))
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        return True


def wait(future: Future[T]) -> T:
    """The result of something submitted, which is called off when this thread is interrupted."""
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def _without_echoes(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Of a request that fails because its connection broke, aiohttp also leaves the task that was writing,
    and asyncio would print each with a traceback."""
    if not isinstance(context.get("exception"), ClientConnectionResetError):
        loop.default_exception_handler(context)


async def _credentials(session: AioSession) -> tuple[str, ...] | None:
    found = await session.get_credentials()
    return tuple(await found.get_frozen_credentials()) if found is not None else None


def _untranslated(error: BaseException) -> BaseException:
    """s3fs makes OSErrors of the server's answers, and keeps the original as their cause."""
    cause = error.__cause__
    return cause if cause is not None and s3_errors.code(cause) else error


def _raise_expected(cause: BaseException, request: Request) -> None:
    """The answers that callers count on."""
    code = s3_errors.code(cause)
    if code in s3_errors.ABSENT and request.key:
        raise FileNotFoundError(request.key) from None
    # An upload that is gone when it is completed was completed by an attempt whose answer was lost.
    if code in s3_errors.EXISTS or (code == "NoSuchUpload" and request.method == "complete_multipart_upload"):
        raise FileExistsError(request.key) from None
    if code in s3_errors.PAST_THE_END:
        raise EOFError(request.key) from None
