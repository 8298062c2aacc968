"""An S3 server that dies and comes back: between requests, in the middle of an upload, too late."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.errors import StoreUnavailable, StoreUnwritable
from mutoscope.platform.ids import new_id
from tests.faults.stores import LATER, assert_repeatable, assert_sound
from tests.support.deadline import until
from tests.support.places import BucketPlace
from tests.support.proxy import Proxy, Sighting
from tests.support.servers import S3Server
from tests.support.writers import Payload, Writer, put

EARLIER = Payload(1, 100_000)
LARGE = Payload(2, 49 << 20, "path")  # three whole parts and a fourth
BRIEF_S = 0.5
"""A deadline that an outage outlasts."""


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    """A server of this module's own: it is killed."""
    server = S3Server()
    server.start()
    yield server
    server.close()


@pytest.fixture
def place(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> BucketPlace:
    """A new bucket, with an object in it."""
    environment = server.writer.environment(server.endpoint)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    bucket = f"b-{new_id()}"
    server.create_bucket(bucket)
    put(ArtifactStore.open(f"s3://{bucket}"), EARLIER)
    return BucketPlace(f"s3://{bucket}", environment)


@dataclass
class KillAtPart:
    """Watches a proxy and kills the server when it is sent its second part."""

    server: S3Server
    fired: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, sighting: Sighting) -> None:
        with self._lock:
            if "partNumber=2&" in f"{sighting.target}&" and not self.fired.is_set():
                self.server.kill()
                self.fired.set()


def test_a_restart_in_the_middle_of_an_upload_is_waited_for(
    server: S3Server, place: BucketPlace, tmp_path: Path
) -> None:
    kill = KillAtPart(server)
    with (
        Proxy(server.endpoint, kill) as proxy,
        Writer(place.url, [LARGE], tmp_path / "writer", AWS_ENDPOINT_URL=proxy.url) as writer,
    ):
        until(kill.fired.is_set, "the server's death between two parts")
        until(lambda: "is not available" in writer.log, "the writer to notice, and say so")
        assert writer.running
        assert writer.acknowledged == []
        server.start()
        assert writer.wait() == 0, writer.log
    assert f"the artifact store {place.url} is not available at {proxy.url} " in writer.log
    assert writer.acknowledged == [LARGE.digest]
    store = ArtifactStore.open(place.url)
    assert_sound(store, [EARLIER.digest, LARGE.digest])
    assert place.unfinished() == 0


@pytest.mark.long
def test_an_upload_that_outlasts_its_deadline_fails_in_one_line_and_can_be_repeated(
    server: S3Server, place: BucketPlace, tmp_path: Path
) -> None:
    kill = KillAtPart(server)
    with (
        Proxy(server.endpoint, kill) as proxy,
        Writer(
            place.url, [LARGE], tmp_path / "writer", deadline_seconds=BRIEF_S, AWS_ENDPOINT_URL=proxy.url
        ) as writer,
    ):
        assert writer.wait() == StoreUnwritable.exit_code, writer.log
        assert kill.fired.is_set()
    last = writer.log.splitlines()[-1]
    assert last.startswith(f"the artifact store {place.url} is not available at {proxy.url} ")
    assert "MUTOSCOPE_STORE_DEADLINE_SECONDS" in last

    server.start()
    store = ArtifactStore.open(place.url)
    assert set(store.digests()) == {EARLIER.digest}, "nothing under its name"
    assert_sound(store, [EARLIER.digest])
    assert place.unfinished() == 1, "nobody was there to be told that the upload is given up"
    assert store.discard_unfinished(LATER) == 1
    assert place.unfinished() == 0
    assert_repeatable(store, [LARGE])


def test_a_server_that_is_away_is_not_a_store_without_objects(server: S3Server, place: BucketPlace) -> None:
    store = ArtifactStore.open(place.url, deadline_seconds=BRIEF_S)
    assert store.contains(EARLIER.digest)
    server.kill()
    try:
        for ask in (
            lambda: store.contains(EARLIER.digest),
            lambda: store.get(EARLIER.digest),
            lambda: store.open_read(EARLIER.digest),
            lambda: store.verify(EARLIER.digest),
            lambda: list(store.digests()),
        ):
            with pytest.raises(StoreUnavailable, match="is not available at"):
                ask()
        for change in (lambda: put(store, EARLIER), lambda: store.trash(EARLIER.digest)):
            with pytest.raises(StoreUnwritable, match="is not available at"):
                change()
    finally:
        server.start()
    assert store.get(EARLIER.digest) == EARLIER.content, "the same store, once the server is back"
    assert_sound(store, [EARLIER.digest])
