"""Objects that rot, shrink or vanish behind the store's back: reads notice, a put repairs, and the damaged
object is kept for inspection.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.artifacts.store import CHUNK_BYTES
from mutoscope.platform.errors import ArtifactCorrupt, ArtifactMissing
from tests.faults.stores import assert_repeatable, assert_sound
from tests.support.places import Change, Place
from tests.support.writers import FORMS, Payload, put

OTHER = Payload(1, 1000)
SIZE = 3 * CHUNK_BYTES + 1000


def flipped_in(place_of_byte: int) -> Change:
    """One bit of one byte."""

    def change(data: bytes) -> bytes:
        altered = bytearray(data)
        altered[place_of_byte] ^= 0x10
        return bytes(altered)

    return change


DAMAGES: dict[str, Change] = {
    "first byte": flipped_in(0),
    "middle": flipped_in(SIZE // 2),
    "last byte": flipped_in(-1),
    "one byte short": lambda data: data[:-1],
    "cut at a chunk": lambda data: data[:CHUNK_BYTES],
    "emptied": lambda data: b"",
    "grown": lambda data: data + b"\0",
    "zeros": lambda data: bytes(len(data)),  # what a power cut leaves of blocks that were never written
}


def reads(store: ArtifactStore, digest: str, folder: Path) -> list[Callable[[], object]]:
    """Every way to the bytes that promises to verify them."""

    def stream() -> object:
        with store.open_read(digest) as reader:
            return reader.read()

    return [
        lambda: store.get(digest),
        stream,
        lambda: store.download(digest, folder / "copy"),
    ]


@pytest.mark.parametrize(
    ("place", "damage"),
    [
        *(("file", damage) for damage in DAMAGES),
        ("s3", "middle"),
        ("s3", "one byte short"),
        ("s3", "emptied"),
    ],
    indirect=["place"],
)
def test_damage_is_noticed_kept_and_repaired(place: Place, tmp_path: Path, damage: str) -> None:
    store = ArtifactStore.open(place.url)
    put(store, OTHER)
    payload = Payload(2, SIZE)
    put(store, payload)
    place.rot(payload.digest, DAMAGES[damage])
    damaged = DAMAGES[damage](payload.content)

    for read in reads(store, payload.digest, tmp_path):
        with pytest.raises(ArtifactCorrupt, match=f"artifact {payload.digest[:12]} is damaged"):
            read()
    assert not (tmp_path / "copy").exists()
    assert store.verify(payload.digest) == "damaged"
    assert store.verify(OTHER.digest) == "sound"

    store.quarantine(payload.digest)
    store.quarantine(OTHER.digest)
    assert not store.contains(payload.digest)
    assert [(kept.digest, kept.size) for kept in store.quarantined()] == [(payload.digest, len(damaged))]
    assert_repeatable(store, [payload])
    assert_sound(store, [payload.digest, OTHER.digest])


@pytest.mark.parametrize(
    ("place", "damage", "form"),
    [
        *product(["file"], ["middle", "one byte short"], FORMS),
        ("s3", "middle", "bytes"),
        ("s3", "middle", "chunks"),
        ("s3", "one byte short", "path"),
    ],
    indirect=["place"],
)
def test_a_put_repairs_and_keeps_the_damaged_object(place: Place, damage: str, form: str) -> None:
    store = ArtifactStore.open(place.url)
    payload = Payload(2, SIZE, form)
    put(store, payload)
    place.overwrite(payload.digest, DAMAGES[damage])
    assert store.verify(payload.digest) == "damaged", "the fault must have happened"

    assert_repeatable(store, [payload])
    assert_sound(store, [payload.digest])
    kept = [found.size for found in store.quarantined()]
    assert kept == [len(DAMAGES[damage](payload.content))]


@pytest.mark.parametrize("place", ["s3"], indirect=True)
def test_what_a_server_does_not_notice_is_found_by_reading(place: Place) -> None:
    """One question per put cannot tell bytes that rot below a server which vouches for them. Whoever reads
    them can, and then they are repaired like any others."""
    store = ArtifactStore.open(place.url)
    payload = Payload(2, SIZE)
    put(store, payload)
    place.rot(payload.digest, DAMAGES["middle"])
    put(store, payload)
    assert store.verify(payload.digest) == "damaged"
    with pytest.raises(ArtifactCorrupt):
        store.get(payload.digest)
    store.quarantine(payload.digest)
    assert_repeatable(store, [payload])
    assert_sound(store, [payload.digest])


def test_a_missing_object_is_missing_until_it_is_put_again(place: Place, tmp_path: Path) -> None:
    store = ArtifactStore.open(place.url)
    put(store, OTHER)
    payload = Payload(2, SIZE)
    put(store, payload)
    place.lose(payload.digest)

    for read in reads(store, payload.digest, tmp_path):
        with pytest.raises(ArtifactMissing, match=f"artifact {payload.digest[:12]} is not in the store"):
            read()
    assert store.verify(payload.digest) == "missing"
    assert not store.contains(payload.digest)
    assert_repeatable(store, [payload])
    assert_sound(store, [payload.digest, OTHER.digest])
    assert list(store.quarantined()) == []
