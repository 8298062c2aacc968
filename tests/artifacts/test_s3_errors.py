"""What people read when S3 refuses or does not answer: one line with the cause and the remedy."""

from __future__ import annotations

import http.server
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from botocore import exceptions as boto

from mutoscope.platform.artifacts import ArtifactStore, s3_errors
from mutoscope.platform.artifacts.s3_client import S3Client
from mutoscope.platform.artifacts.s3_errors import Request
from mutoscope.platform.errors import (
    InvalidInput,
    MutoscopeError,
    StoreAway,
    StoreUnavailable,
    StoreUnwritable,
)
from mutoscope.platform.ids import new_id, sha256
from tests.artifacts.test_s3 import DATA, put
from tests.support.buckets import Bucket
from tests.support.proxy import Proxy, Sighting
from tests.support.servers import Credentials, S3Server

DIGEST = sha256(DATA)
REQUEST = Request("put_object", "bucket", "objects/aa/aa11", "http://s3.example:8333")

Attempt = Callable[[ArtifactStore], object]

WRITES: dict[str, Attempt] = {
    "put": put,
    "check": lambda store: store.check_writable(),
    "publish": lambda store: store.publish("runs/a", b"", "text/html"),
}
READS: dict[str, Attempt] = {
    "get": lambda store: store.get(DIGEST),
    "stream": lambda store: store.open_read(DIGEST),
    "slice": lambda store: store.read_range(DIGEST, 0, 1),
    "contains": lambda store: store.contains(DIGEST),
    "verify": lambda store: store.verify(DIGEST),
    "inventory": lambda store: list(store.inventory()),
    "published": lambda store: store.published("runs/a"),
}


def said(attempt: Attempt, store: ArtifactStore, error: type[MutoscopeError]) -> str:
    with pytest.raises(error) as raised:
        attempt(store)
    assert type(raised.value) is error
    text = str(raised.value)
    assert "\n" not in text
    assert "secret" not in text
    return text


def refused(store: ArtifactStore) -> Iterator[str]:
    """The message of each attempt, with the error that belongs to it."""
    for attempt in WRITES.values():
        yield said(attempt, store, StoreUnwritable)
    for attempt in READS.values():
        yield said(attempt, store, StoreUnavailable)


@pytest.fixture
def as_identity(s3_server: S3Server, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes later stores talk as somebody else, or to another place."""

    def become(credentials: Credentials = s3_server.writer, endpoint: str = s3_server.endpoint) -> None:
        for name, value in credentials.environment(endpoint).items():
            monkeypatch.setenv(name, value)

    return become


def test_a_missing_bucket_is_named(s3_server: S3Server, bucket: Bucket) -> None:
    for text in refused(ArtifactStore.open("s3://no-such-bucket/a")):
        assert text == (
            f"the bucket no-such-bucket does not exist at {s3_server.endpoint}: create it with "
            f"`aws --endpoint-url {s3_server.endpoint} s3 mb s3://no-such-bucket`, "
            "or set MUTOSCOPE_STORE_URL to another"
        )


def test_an_identity_that_may_only_read(
    s3_server: S3Server, bucket: Bucket, as_identity: Callable[..., None]
) -> None:
    prefix = new_id()
    writing = bucket.store(prefix)
    put(writing)
    as_identity(s3_server.reader)
    reading = ArtifactStore.open(f"s3://{bucket.name}/{prefix}")
    assert reading.get(DIGEST) == DATA
    assert list(reading.digests()) == [DIGEST]
    put(reading)  # a duplicate is no write
    text = said(lambda store: put(store, b"new"), reading, StoreUnwritable)
    assert text == (
        f"{s3_server.endpoint} denies s3:PutObject on {reading.url(sha256(b'new'))}: grant it, and "
        "s3:ListBucket, to the identity in use, or set other credentials"
    )
    writing.publish("runs/x", b"", "text/html")
    assert "s3:DeleteObject" in said(lambda store: store.unpublish("runs/x"), reading, StoreUnwritable)
    writing.trash(DIGEST)
    assert reading.get(DIGEST) == DATA, "read where it lies"
    assert not writing.contains(DIGEST)


@pytest.mark.parametrize(
    ("key", "secret", "code"),
    [("nobody", "a-secret", "InvalidAccessKeyId"), ("writer-key", "a-secret", "SignatureDoesNotMatch")],
)
def test_credentials_that_are_not_accepted(
    s3_server: S3Server, bucket: Bucket, as_identity: Callable[..., None], key: str, secret: str, code: str
) -> None:
    as_identity(Credentials(key, secret))
    for text in refused(ArtifactStore.open(f"s3://{bucket.name}")):
        assert (
            f"{s3_server.endpoint} does not accept these credentials for s3://{bucket.name} ({code})" in text
        )
        assert "renew AWS_ACCESS_KEY_ID" in text


def test_no_credentials_at_all(bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    for text in refused(ArtifactStore.open(f"s3://{bucket.name}")):
        assert text.startswith(f"no AWS credentials for s3://{bucket.name}: set AWS_ACCESS_KEY_ID")


def test_a_server_that_is_not_there(
    bucket: Bucket, as_identity: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    as_identity(endpoint=f"http://127.0.0.1:{port}")
    store = ArtifactStore.open("s3://bucket", deadline_seconds=0.3)
    with caplog.at_level(logging.WARNING):
        text = said(put, store, StoreAway)
    assert (
        f"the artifact store s3://bucket is not available at http://127.0.0.1:{port} (Connection refused)"
        in text
    )
    assert "tried for 0 s (MUTOSCOPE_STORE_DEADLINE_SECONDS says how long)" in text
    assert "AWS_ENDPOINT_URL" in text
    (warning,) = caplog.messages
    assert warning.endswith(": trying for 0 s")
    assert f"127.0.0.1:{port}" in warning
    for attempt in (*WRITES.values(), *READS.values()):
        assert "is not available" in said(attempt, store, StoreAway)


def test_a_name_that_does_not_resolve(bucket: Bucket, as_identity: Callable[..., None]) -> None:
    as_identity(endpoint="http://store.invalid:8333")
    store = ArtifactStore.open("s3://bucket", deadline_seconds=0.3)
    text = said(READS["get"], store, StoreAway)
    assert "is not available at http://store.invalid:8333 (" in text
    assert "AWS_ENDPOINT_URL" in text


def test_a_server_that_comes_back_in_time(
    s3_server: S3Server, bucket: Bucket, as_identity: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Sighting] = []

    def break_three_times(sighting: Sighting) -> None:
        seen.append(sighting)
        if len(seen) <= 3:
            raise ConnectionError

    with Proxy(s3_server.endpoint, break_three_times) as proxy, caplog.at_level(logging.WARNING):
        as_identity(endpoint=proxy.url)
        store = ArtifactStore.open(f"s3://{bucket.name}/{new_id()}")
        put(store)
        assert [sighting.method for sighting in seen] == ["HEAD"] * 4 + ["PUT"]
    assert len(caplog.messages) == 1, "once an outage, not once an attempt"


def test_an_outage_is_told_once_however_many_wait_for_its_end(
    bucket: Bucket, as_identity: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    as_identity(endpoint=f"http://127.0.0.1:{port}")
    client = S3Client("bucket", deadline_seconds=0.3)
    with caplog.at_level(logging.WARNING):
        waiting = [client.submit("head_object", f"key-{n}") for n in range(8)]
        errors = [future.exception() for future in waiting]
    assert {type(error) for error in errors} == {StoreAway}
    assert [record.name for record in caplog.records] == ["mutoscope.platform.artifacts.s3_client"]


@pytest.mark.parametrize("endpoint", ["nonsense", "http://"])
def test_an_endpoint_that_is_no_url(bucket: Bucket, as_identity: Callable[..., None], endpoint: str) -> None:
    as_identity(endpoint=endpoint)
    assert "check AWS_ENDPOINT_URL" in said(put, ArtifactStore.open("s3://bucket"), InvalidInput)


def test_a_web_server_that_is_no_s3(bucket: Bucket, as_identity: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(tmp_path))  # type: ignore[arg-type]

        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}"
            as_identity(endpoint=url)
            store = ArtifactStore.open("s3://bucket", deadline_seconds=0.3)
            for attempt in (READS["inventory"], WRITES["publish"]):
                with pytest.raises((StoreUnavailable, StoreUnwritable), match=url):
                    attempt(store)
        finally:
            server.shutdown()
            thread.join()


def client_error(code: str, status: int, message: str = "", **fields: str) -> boto.ClientError:
    return boto.ClientError(
        {
            "Error": {"Code": code, "Message": message, **fields},
            "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": {}},
        },  # type: ignore[typeddict-item]
        "PutObject",
    )


# SeaweedFS has no regions and no passing tokens: these are answers as S3 documents them.
@pytest.mark.parametrize("code", ["ExpiredToken", "InvalidAccessKeyId", "TokenRefreshRequired"])
def test_refusals_that_new_credentials_may_lift(code: str) -> None:
    error = client_error(code, 400)
    assert s3_errors.is_about_credentials(error)
    assert not s3_errors.is_transient(error)


@pytest.mark.parametrize(
    ("code", "status"),
    [("SlowDown", 503), ("InternalError", 500), ("503", 503), ("RequestTimeout", 400), ("429", 429),
     ("ConditionalRequestConflict", 409), ("BadDigest", 400)],
)  # fmt: skip
def test_refusals_that_pass(code: str, status: int) -> None:
    assert s3_errors.is_transient(client_error(code, status))


@pytest.mark.parametrize(
    ("code", "status"), [("AccessDenied", 403), ("NoSuchBucket", 404), ("InvalidRequest", 400), ("501", 501)]
)
def test_refusals_that_stand(code: str, status: int) -> None:
    assert not s3_errors.is_transient(client_error(code, status))
    assert not s3_errors.is_about_credentials(client_error(code, status))


def test_another_region_is_named() -> None:
    error = client_error("AuthorizationHeaderMalformed", 400, "expecting 'eu-west-3'", Region="eu-west-3")
    assert str(s3_errors.explained(error, REQUEST)) == (
        "the bucket bucket is in another region (AuthorizationHeaderMalformed): "
        "set AWS_DEFAULT_REGION=eu-west-3"
    )
    assert "AWS_DEFAULT_REGION to the region" in str(s3_errors.explained(client_error("301", 301), REQUEST))


def test_what_no_rule_knows_is_passed_on_without_secrets() -> None:
    error = client_error("Strange", 418, "see https://user:hunter2@s3.example/?key=hunter2\n now")
    assert str(s3_errors.explained(error, REQUEST)) == (
        "http://s3.example:8333 refuses s3:PutObject on s3://bucket/objects/aa/aa11 "
        "(Strange: see https://***@s3.example/?*** now)"
    )


def test_the_reason_is_the_innermost() -> None:
    cause = ConnectionResetError(104, "Connection reset by peer")
    wrapped = boto.HTTPClientError(error=boto.EndpointConnectionError(endpoint_url="http://x", error=cause))
    assert s3_errors.reason(wrapped) == "Connection reset by peer"
    assert s3_errors.reason(TimeoutError()) == "no answer in time"
    assert s3_errors.reason(client_error("SlowDown", 503)) == "SlowDown"
