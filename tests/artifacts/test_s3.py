"""S3 stores on a real server: what a put asks and leaves behind, and what it does about other writers."""

from __future__ import annotations

import io
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mutoscope.platform.artifacts import ArtifactRef, ArtifactStore, s3, s3_transfer
from mutoscope.platform.artifacts.layout import object_name, trash_name
from mutoscope.platform.artifacts.s3_client import S3Client
from mutoscope.platform.artifacts.s3_transfer import checksum
from mutoscope.platform.errors import ArtifactCorrupt, InvalidParameter, StoreUnwritable
from mutoscope.platform.ids import new_id, sha256
from tests.support.buckets import Bucket
from tests.support.proxy import Proxy, Sighting
from tests.support.servers import S3Server

DATA = b"bytes on their way into a bucket"


def put(store: ArtifactStore, source: object = DATA, media_type: str = "image/png") -> ArtifactRef:
    return store.put(source, kind="image", media_type=media_type)  # type: ignore[arg-type]


@contextmanager
def watched(
    server: S3Server, bucket: Bucket, prefix: str, watcher: Callable[[Sighting], None] = lambda sighting: None
) -> Iterator[tuple[ArtifactStore, Proxy]]:
    """The store below a prefix, seen through a proxy. Its first request, which may be about the bucket, is
    over."""
    with pytest.MonkeyPatch.context() as patch, Proxy(server.endpoint, watcher) as proxy:
        patch.setenv("AWS_ENDPOINT_URL", proxy.url)
        store = ArtifactStore.open(f"s3://{bucket.name}/{prefix}")
        put(store, b"first")
        proxy.forget()
        yield store, proxy


def methods(proxy: Proxy) -> list[str]:
    seen = [sighting.method for sighting in proxy.requests]
    proxy.forget()
    return seen


def test_a_put_takes_two_requests_and_a_duplicate_one(
    s3_server: S3Server, bucket: Bucket, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_bytes(DATA * 3)
    with watched(s3_server, bucket, new_id()) as (store, proxy):
        for source in (lambda: DATA, lambda: io.BytesIO(DATA * 2), lambda: path, lambda: [b"x", b"y"], bytes):
            put(store, source())
            assert methods(proxy) == ["HEAD", "PUT"]
            put(store, source())
            assert methods(proxy) == ["HEAD"]
        assert store.get(sha256(DATA)) == DATA
        assert methods(proxy) == ["GET"]
        with store.open_read(sha256(DATA)) as stream:
            assert stream.read() == DATA
        assert methods(proxy) == ["GET"]
        largest = bytes(s3.SINGLE_BYTES)
        put(store, largest)
        assert methods(proxy) == ["HEAD", "PUT"]


def test_the_server_is_told_what_it_holds(bucket: Bucket, s3_store: ArtifactStore) -> None:
    head = bucket.head(s3_store.url(put(s3_store).digest))
    assert head["ContentType"] == "image/png"
    assert head["Metadata"] == {"sha256": sha256(DATA), "kind": "image"}
    assert head["ChecksumSHA256"] == checksum(DATA)
    assert "immutable" in head["CacheControl"]
    text = bucket.head(s3_store.url(put(s3_store, "é".encode(), "text/plain").digest))
    assert text["ContentType"] == "text/plain; charset=utf-8"


def test_a_page_is_shown_and_asked_for_again(bucket: Bucket, s3_store: ArtifactStore) -> None:
    s3_store.publish("runs/a/index.html", b"<p>", "text/html; charset=utf-8")
    head = bucket.head(s3_store.page_url("runs/a/index.html"))
    assert (head["ContentType"], head["CacheControl"]) == ("text/html; charset=utf-8", "no-cache")


def test_a_presigned_link_opens_in_any_browser(s3_store: ArtifactStore) -> None:
    url = s3_store.presigned_url(put(s3_store).digest, seconds=60)
    assert url is not None
    with urllib.request.urlopen(url) as answer:
        assert answer.read() == DATA
        assert answer.headers["Content-Type"] == "image/png"
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(url.partition("?")[0])
    for seconds in (0, s3.LONGEST_LINK_S + 1):
        with pytest.raises(InvalidParameter, match="a week"):
            s3_store.presigned_url(sha256(DATA), seconds)


def test_the_server_refuses_bytes_that_changed_on_their_way(bucket: Bucket) -> None:
    key = new_id()
    hasty = S3Client(bucket.name, deadline_seconds=0.2)
    with pytest.raises(StoreUnwritable, match=r"BadDigest"):
        hasty.call("put_object", key, Body=DATA, ChecksumSHA256=checksum(b"other bytes"))
    with pytest.raises(FileNotFoundError):
        bucket.client.call("head_object", key)


def test_a_writer_that_is_overtaken_leaves_the_others_object(s3_server: S3Server, bucket: Bucket) -> None:
    prefix = new_id()
    faster = bucket.store(prefix)

    def overtake(sighting: Sighting) -> None:
        if sighting.method == "PUT" and sha256(DATA) in sighting.target:
            put(faster)

    with watched(s3_server, bucket, prefix, overtake) as (store, proxy):
        assert put(store).digest == sha256(DATA)
        assert methods(proxy) == ["HEAD", "PUT", "HEAD"]
    assert list(faster.quarantined()) == []


def test_a_writer_that_is_overtaken_by_garbage_repairs_it(s3_server: S3Server, bucket: Bucket) -> None:
    prefix = new_id()
    around = bucket.store(prefix)
    garbage = iter([b"garbage"])

    def overtake(sighting: Sighting) -> None:
        if sighting.method == "PUT" and object_name(sha256(DATA)) in sighting.target:
            for data in garbage:
                bucket.objects.pipe_file(around.url(sha256(DATA)), data)

    with watched(s3_server, bucket, prefix, overtake) as (store, _):
        put(store)
    assert around.get(sha256(DATA)) == DATA
    assert [(q.digest, q.size) for q in around.quarantined()] == [(sha256(DATA), len(b"garbage"))]


def test_a_mirror_that_lost_the_metadata_is_taken_as_it_is(s3_server: S3Server, bucket: Bucket) -> None:
    prefix = new_id()
    url = bucket.store(prefix).url(sha256(DATA))
    bucket.objects.pipe_file(url, DATA)
    with watched(s3_server, bucket, prefix) as (store, proxy):
        put(store)
        assert methods(proxy) == ["HEAD", "GET"]
        assert list(store.quarantined()) == []


def test_a_checksum_kept_by_the_server_tells_damage(bucket: Bucket, s3_store: ArtifactStore) -> None:
    url = s3_store.url(sha256(DATA))
    flipped = DATA[:-1] + b"!"
    bucket.client.call(
        "put_object", url.removeprefix(f"s3://{bucket.name}/"), Body=flipped,
        ChecksumSHA256=checksum(flipped), Metadata={"sha256": sha256(DATA)},
    )  # fmt: skip
    put(s3_store)
    assert s3_store.get(sha256(DATA)) == DATA
    assert len(list(s3_store.quarantined())) == 1


def test_damage_that_the_server_vouches_for_is_set_aside_first(
    bucket: Bucket, s3_store: ArtifactStore
) -> None:
    # As after rot below the server: what it says of the object is what it said when the bytes were sound.
    url = s3_store.url(sha256(DATA))
    bucket.client.call(
        "put_object", url.removeprefix(f"s3://{bucket.name}/"), Body=DATA[:-1] + b"!",
        Metadata={"sha256": sha256(DATA)},
    )  # fmt: skip
    put(s3_store)
    with pytest.raises(ArtifactCorrupt, match="set it aside with `mutoscope fsck --repair`"):
        s3_store.get(sha256(DATA))
    s3_store.quarantine(sha256(DATA))
    put(s3_store)
    assert s3_store.get(sha256(DATA)) == DATA
    assert len(list(s3_store.quarantined())) == 1


def test_listings_do_not_end_at_a_thousand(bucket: Bucket, s3_store: ArtifactStore) -> None:
    # Empty ones: what is listed are names.
    digests = {sha256(b"%d" % n) for n in range(1100)}
    prefix = s3_store.root_url.removeprefix(f"s3://{bucket.name}/")
    waiting = [
        bucket.client.submit("put_object", f"{prefix}/{object_name(digest)}", Body=b"") for digest in digests
    ]
    for future in waiting:
        future.result()
    assert {stored.digest for stored in s3_store.inventory()} == digests
    assert list(s3_store.foreign()) == []


def test_large_objects_move_in_parts_and_stay_what_they_are(
    bucket: Bucket, s3_store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "COPY_BYTES", 6 << 20)
    monkeypatch.setattr(s3_transfer, "COPY_PART_BYTES", 5 << 20)
    data = b"".join(bytes([n]) * (1 << 20) for n in range(12))
    digest = put(s3_store, data).digest
    before = bucket.head(s3_store.url(digest))
    assert s3_store.trash(digest)
    trashed = bucket.head(f"{s3_store.root_url}/{trash_name(digest)}")
    assert trashed["ETag"].endswith('-3"'), "five, five and two MiB"
    assert s3_store.get(digest) == data
    after = bucket.head(s3_store.url(digest))
    kept = ("ContentType", "Metadata", "CacheControl", "ContentLength")
    assert [after[name] for name in kept] == [before[name] for name in kept]


def test_uploads_that_were_left_can_be_cleared_away(bucket: Bucket, s3_store: ArtifactStore) -> None:
    prefix = s3_store.root_url.removeprefix(f"s3://{bucket.name}/")
    left = f"{prefix}/{object_name(sha256(b'never finished'))}"
    upload = bucket.client.call("create_multipart_upload", left)["UploadId"]
    bucket.client.call("upload_part", left, UploadId=upload, PartNumber=1, Body=DATA)
    elsewhere = bucket.client.call("create_multipart_upload", "elsewhere")["UploadId"]
    assert s3_store.discard_unfinished(before=time.time() - 3600) == 0
    assert s3_store.discard_unfinished(before=time.time() + 3600) == 1
    still = bucket.client.call("list_multipart_uploads")["Uploads"]
    assert [upload["UploadId"] for upload in still] == [elsewhere]
    bucket.client.call("abort_multipart_upload", "elsewhere", UploadId=elsewhere)


def test_a_whole_bucket_can_be_a_store(s3_server: S3Server, s3_bucket: str) -> None:
    store = ArtifactStore.open(s3_bucket)
    store.check_writable()
    digest = put(store).digest
    store.publish("runs/index.html", b"<p>", "text/html")
    assert store.url(digest) == f"{s3_bucket}/{object_name(digest)}"
    assert list(store.digests()) == [digest]
    assert list(store.pages()) == ["runs/index.html"]
    assert list(store.foreign()) == []
    readme = store._backend.read("README.txt")
    assert all(folder in readme for folder in (b"objects/", b"trash/", b"quarantine/", b"runs/", b"tmp/"))
    store.check_writable()
