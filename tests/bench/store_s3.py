"""The store on S3 against s3fs alone, and the requests it takes.

The server is SeaweedFS on this machine: rates are those of two processes sharing its cores, and only their
ratio means something. Requests are counted by a proxy between client and server, in rounds of their own.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import s3fs

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.ids import new_id, sha256
from tests.support.proxy import Proxy
from tests.support.servers import S3Server

OBJECTS, OBJECT_BYTES, LARGE_BYTES = 100, 64 << 10, 128 << 20
BUDGET_S, LEAST_ROUNDS = 60.0, 2
"""Seconds after which no further round begins, once there are so many."""
COUNTED = 20
"""Objects of each kind whose requests are counted."""


def measure(rounds: int) -> dict[str, Any]:
    """Rates of every round, their medians and ratios, and requests per object."""
    server = S3Server()
    server.start()
    try:
        with environment(server, server.endpoint):
            rows, started = [], time.monotonic()
            while len(rows) < rounds:
                if len(rows) >= LEAST_ROUNDS and time.monotonic() - started > BUDGET_S:
                    break
                rows.append(one_round(server))
        return {
            "config": {"objects": OBJECTS, "object_bytes": OBJECT_BYTES, "large_bytes": LARGE_BYTES},
            "mb_per_second": {name: statistics.median(row[name] for row in rows) for name in rows[0]},
            "ratio_to_s3fs": {work: ratio(rows, work) for work in ("put", "get", "large put", "large get")},
            **counts(server),
            "rounds": rows,
        }
    finally:
        server.close()


@contextmanager
def environment(server: S3Server, endpoint: str) -> Iterator[None]:
    """This process's environment with credentials for the server, reached at `endpoint`."""
    wanted = server.writer.environment(endpoint)
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def one_round(server: S3Server) -> dict[str, float]:
    """MB/s of each kind of work over fresh buckets, store and s3fs in turn, on bytes never seen before."""
    plain, ours = f"b-{new_id()}", f"b-{new_id()}"
    server.create_bucket(plain)
    server.create_bucket(ours)
    filesystem = s3fs.S3FileSystem(skip_instance_cache=True)
    store = ArtifactStore.open(f"s3://{ours}")
    blocks = some_blocks(OBJECTS)
    names = [sha256(block) for block in blocks]
    large = os.urandom(LARGE_BYTES)
    large_name = sha256(large)
    small, big = OBJECTS * OBJECT_BYTES, LARGE_BYTES

    def plain_put(block: bytes) -> None:
        filesystem.pipe_file(f"{plain}/{sha256(block)}", block)

    def plain_get(name: str) -> None:
        assert sha256(filesystem.cat_file(f"{plain}/{name}")) == name

    return {
        "s3fs put": rate(lambda: [plain_put(block) for block in blocks], small),
        "mutoscope put": rate(lambda: [put(store, block) for block in blocks], small),
        "mutoscope duplicate": rate(lambda: [put(store, block) for block in blocks], small),
        "s3fs get": rate(lambda: [plain_get(name) for name in names], small),
        "mutoscope get": rate(lambda: [store.get(name) for name in names], small),
        "s3fs large put": rate(lambda: plain_put(large), big),
        "mutoscope large put": rate(lambda: put(store, large), big),
        "s3fs large get": rate(lambda: plain_get(large_name), big),
        "mutoscope large get": rate(lambda: store.get(large_name), big),
    }


def counts(server: S3Server) -> dict[str, Any]:
    """Requests per object, and which."""
    bucket = f"b-{new_id()}"
    server.create_bucket(bucket)
    with Proxy(server.endpoint) as proxy, environment(server, proxy.url):
        store = ArtifactStore.open(f"s3://{bucket}")
        put(store, b"the first request may ask for more: where the bucket is, which credentials hold")
        blocks = some_blocks(COUNTED)
        work: dict[str, Callable[[bytes], object]] = {
            "put": lambda block: put(store, block),
            "duplicate": lambda block: put(store, block),
            "get": lambda block: store.get(sha256(block)),
        }
        seen = {}
        for name, call in work.items():
            proxy.forget()
            for block in blocks:
                call(block)
            seen[name] = Counter(sighting.method for sighting in proxy.requests)
    return {
        "requests_per_object": {name: sum(found.values()) / COUNTED for name, found in seen.items()},
        "methods": {name: dict(found) for name, found in seen.items()},
    }


def some_blocks(count: int) -> Sequence[bytes]:
    common = os.urandom(OBJECT_BYTES - 8)
    return [number.to_bytes(8, "big") + common for number in range(count)]


def put(store: ArtifactStore, data: bytes) -> None:
    store.put(data, kind="blob", media_type="application/octet-stream")


def rate(work: Callable[[], object], size: int) -> float:
    started = time.perf_counter()
    work()
    return round(size / 1e6 / (time.perf_counter() - started), 1)


def ratio(rows: Sequence[Mapping[str, float]], work: str) -> float:
    """Median over the rounds of the store's rate over that of s3fs."""
    return round(statistics.median(row[f"mutoscope {work}"] / row[f"s3fs {work}"] for row in rows), 3)


def show(record: Mapping[str, Any]) -> None:
    """The figures."""
    for name, value in record["mb_per_second"].items():
        print(f"s3: {name:26}{value:12.1f} MB/s")
    for name, value in record["ratio_to_s3fs"].items():
        print(f"s3: {name:26}{value:12.2f} of s3fs")
    for name, value in record["requests_per_object"].items():
        print(f"s3: {name:26}{value:12.2f} requests an object {record['methods'][name]}")
