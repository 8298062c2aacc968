"""Objects that rot, shrink or vanish behind the store's back: reads notice, a put repairs, and the damaged
object is kept for inspection.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.artifacts.store import CHUNK_BYTES
from mutoscope.platform.errors import ArtifactCorrupt, ArtifactMissing
from tests.faults.stores import assert_repeatable, assert_sound
from tests.support.places import Change, Place
from tests.support.writers import FORMS, Form, Payload, put

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


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_noticed_kept_and_repaired(place: Place, tmp_path: Path, damage: str) -> None:
    store = ArtifactStore.open(place.url)
    put(store, OTHER)
    payload = Payload(2, SIZE)
    put(store, payload)
    place.alter(payload.digest, DAMAGES[damage])
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


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("damage", ["middle", "one byte short"])
def test_a_put_repairs_and_keeps_the_damaged_object(place: Place, damage: str, form: Form) -> None:
    store = ArtifactStore.open(place.url)
    payload = Payload(2, SIZE, form)
    put(store, payload)
    place.alter(payload.digest, DAMAGES[damage])
    assert store.verify(payload.digest) == "damaged", "the fault must have happened"

    assert_repeatable(store, [payload])
    assert_sound(store, [payload.digest])
    kept = [found.size for found in store.quarantined()]
    assert kept == [len(DAMAGES[damage](payload.content))]


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
