"""Large objects on S3: parts, memory, and what is left when something breaks half-way."""

from __future__ import annotations

import gc
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mutoscope.platform import faults
from mutoscope.platform.artifacts import ArtifactRef, ArtifactStore, s3_transfer
from mutoscope.platform.artifacts.s3_transfer import MIB, MOST_PARTS, PART_BYTES, part_bytes
from mutoscope.platform.errors import StoreUnwritable
from mutoscope.platform.faults import InjectedError
from mutoscope.platform.ids import new_id, sha256
from tests.artifacts.test_s3 import watched
from tests.support.buckets import Bucket
from tests.support.parts import few_now
from tests.support.proxy import Sighting
from tests.support.servers import S3Server
from tests.support.writers import FORMS

ROOT = Path(__file__).parents[2]
GIB = 1 << 30


def put(store: ArtifactStore, source: object) -> ArtifactRef:
    return store.put(source, kind="weights", media_type="application/vnd.safetensors")  # type: ignore[arg-type]


def numbered(mebibytes: int) -> bytes:
    """No two parts alike: one in another's place would show."""
    return b"".join(n.to_bytes(4, "big") * (MIB // 4) for n in range(mebibytes))


def uploads(bucket: Bucket) -> list[str]:
    return [upload["Key"] for upload in bucket.client.call("list_multipart_uploads").get("Uploads", ())]


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (PART_BYTES + 1, PART_BYTES),
        (6 * GIB, PART_BYTES),
        (MOST_PARTS * PART_BYTES, PART_BYTES),
        (MOST_PARTS * PART_BYTES + 1, PART_BYTES + MIB),  # one byte a part more, rounded up to a MiB
        (5 << 40, 525 * MIB),  # S3's largest object: 5 TiB / 10,000 = 524.3 MiB
    ],
)
def test_parts_are_as_many_as_s3_allows(size: int, expected: int) -> None:
    assert part_bytes(size) == expected
    assert -(-size // part_bytes(size)) <= MOST_PARTS


@pytest.mark.parametrize("form", few_now(FORMS, lambda form: form in {"stream", "path"}))
def test_a_large_object_goes_up_in_parts(
    s3_server: S3Server, bucket: Bucket, tmp_path: Path, form: str
) -> None:
    data = numbered(40)
    path = tmp_path / "file"
    path.write_bytes(data)
    chunks = [data[at : at + 700_001] for at in range(0, len(data), 700_001)]
    source = {"bytes": data, "stream": io.BytesIO(data), "chunks": chunks, "path": path}[form]
    with watched(s3_server, bucket, new_id()) as (store, proxy):
        ref = put(store, source)
        seen = [sighting.method for sighting in proxy.requests]
        assert seen[:2] == ["HEAD", "POST"]
        assert seen[2:-1] == ["PUT"] * 3, "16, 16 and 8 MiB"
        assert seen[-1] == "POST"
        proxy.forget()
        put(store, data)
        assert [sighting.method for sighting in proxy.requests] == ["HEAD"]
        assert store.verify(ref.digest) == "sound"
        assert store.read_range(ref.digest, 20 * MIB, 8) == data[20 * MIB : 20 * MIB + 8]
    head = bucket.head(store.url(ref.digest))
    assert (head["ContentLength"], head["ContentType"]) == (40 * MIB, "application/vnd.safetensors")
    assert head["ChecksumSHA256"].endswith("-3"), "the server checked each part"
    assert uploads(bucket) == []


def test_a_file_that_changes_while_it_is_stored_is_refused(
    s3_server: S3Server, bucket: Bucket, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_bytes(numbered(40))

    def change(sighting: Sighting) -> None:
        if sighting.method == "POST" and sighting.target.endswith("uploads"):
            with path.open("r+b") as file:
                file.seek(33 * MIB)
                file.write(b"changed")

    with watched(s3_server, bucket, new_id(), change) as (store, _):
        with pytest.raises(StoreUnwritable, match="changed while it was stored"):
            put(store, path)
        assert [stored.size for stored in store.inventory()] == [len(b"first")]
    assert uploads(bucket) == []


def test_a_small_file_that_changes_while_it_is_stored_is_refused(
    s3_server: S3Server, bucket: Bucket, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")

    def change(sighting: Sighting) -> None:
        if sighting.method == "HEAD" and sha256(b"before") in sighting.target:
            path.write_bytes(b"behind")

    with watched(s3_server, bucket, new_id(), change) as (store, _):
        with pytest.raises(StoreUnwritable, match="changed while it was stored"):
            put(store, path)
        assert [stored.size for stored in store.inventory()] == [len(b"first")]


def test_whatever_fails_between_parts_leaves_nothing(
    bucket: Bucket, s3_store: ArtifactStore, tmp_path: Path
) -> None:
    marker = tmp_path / "fired"
    for point in ("store.mid_multipart", "store.before_commit"):
        with pytest.raises(InjectedError, match=point), faults.armed(f"{point}:raise", marker):
            put(s3_store, numbered(40))
        assert list(s3_store.inventory()) == []
        assert uploads(bucket) == []
    assert marker.read_text().split() == ["store.mid_multipart", "store.before_commit"]


def test_a_connection_that_breaks_costs_one_part(
    s3_server: S3Server, bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    broken: set[str] = set()

    def break_once(sighting: Sighting) -> None:
        part = re.search(r"partNumber=(\d+)", sighting.target)
        if part and part[1] in ("2", "3") and part[1] not in broken:
            broken.add(part[1])
            raise ConnectionError

    with watched(s3_server, bucket, new_id(), break_once) as (store, proxy):
        ref = put(store, numbered(40))
        assert broken == {"2", "3"}
        assert [sighting.method for sighting in proxy.requests].count("PUT") == 5, "three, and two again"
        assert store.verify(ref.digest) == "sound"
    gc.collect()
    assert [record for record in caplog.records if record.name == "asyncio"] == [], "no echoes of it"


def test_an_answer_that_is_lost_at_the_end_is_no_failure(s3_server: S3Server, bucket: Bucket) -> None:
    prefix, lost = new_id(), []
    around = bucket.store(prefix)

    def complete_twice(sighting: Sighting) -> None:
        """The server completes the upload; the client learns nothing of it, and asks again."""
        if sighting.method == "POST" and "uploadId=" in sighting.target and not lost:
            lost.append(sighting)
            put(around, data)

    data = numbered(20)
    with watched(s3_server, bucket, prefix, complete_twice) as (store, _):
        ref = put(store, data)
        assert len(lost) == 1
        assert store.verify(ref.digest) == "sound"
    assert uploads(bucket) == []


def test_a_download_survives_broken_connections(
    s3_server: S3Server, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_transfer, "BLOCK_BYTES", MIB)
    gets: list[Sighting] = []

    def break_every_second(sighting: Sighting) -> None:
        if sighting.method == "GET":
            gets.append(sighting)
            if len(gets) % 2 == 0:
                raise ConnectionError

    data = numbered(5)
    with watched(s3_server, bucket, new_id(), break_every_second) as (store, _):
        ref = put(store, data)
        with store.open_read(ref.digest) as stream:
            assert b"".join(iter(lambda: stream.read(123_457), b"")) == data
    assert len(gets) > 6, "five blocks, and some of them again"


BOUNDED = """
import sys
from pathlib import Path
from mutoscope.platform.artifacts import ArtifactStore
from tests.support import memory

url, path, size = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
store = ArtifactStore.open(url)
store.check_writable()
base = memory.reset_peak()
ref = store.put(path, kind="weights", media_type="x/y")
assert ref.size == size
print(memory.peak() - base)
assert store.verify(ref.digest) == "sound"
print(memory.peak() - base)
print(memory.peak())
"""


def memory_of_a_round_trip(url: str, path: Path) -> Iterator[int]:
    """Bytes above the base after putting the file, after reading it back; and the peak as a whole."""
    command = [sys.executable, "-c", BOUNDED, url, str(path), str(path.stat().st_size)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return map(int, done.stdout.split())


def written(path: Path, mebibytes: int) -> Path:
    """A file of random bytes, repeated."""
    block = os.urandom(MIB)
    with path.open("wb") as file:
        for number in range(mebibytes):
            file.write(number.to_bytes(8, "big") + block[8:])
    return path


def test_memory_stays_bounded_whatever_the_size(bucket: Bucket, tmp_path: Path) -> None:
    url = bucket.store().root_url
    put_bytes, read_bytes, _ = memory_of_a_round_trip(url, written(tmp_path / "file", 320))
    # Four parts under way and one being read, 16 MiB each, and what the HTTP client copies of them.
    assert put_bytes < 160 * MIB, f"{put_bytes / MIB:.0f} MiB"
    assert read_bytes < 160 * MIB, f"{read_bytes / MIB:.0f} MiB"


@pytest.mark.slow
def test_six_gigabytes_within_256_mib(bucket: Bucket, tmp_path: Path) -> None:
    path = written(tmp_path / "file", 6 * 1024)
    *_, peak_bytes = memory_of_a_round_trip(bucket.store().root_url, path)
    assert peak_bytes < 256 * MIB, f"{peak_bytes / MIB:.0f} MiB"
