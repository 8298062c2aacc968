"""Killing a process at every named moment of a put or a move: what was acknowledged stays, what was not can
be done again.
"""

from __future__ import annotations

import signal
from itertools import product
from pathlib import Path

import pytest

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.faults import POINTS
from tests.faults.stores import LATER, assert_repeatable, assert_sound
from tests.support.parts import few_now
from tests.support.places import Place
from tests.support.writers import FORMS, Payload, Verb, Writer, put

EARLIER = Payload(1, 100_000)
SMALL = 5 << 19
"""Bytes: two and a half of the pieces in which streams are read."""
LARGE = 33 << 20
"""Bytes: two whole parts of an upload to S3, and a third."""

Case = tuple[str, str, str, int]
"""Place, fault, form and size of what is put."""

ON_FILE: list[Case] = [
    ("file", point, form, SMALL)
    for point, form in product(("store.mid_write", "store.before_commit", "store.after_commit"), FORMS)
]
ON_S3: list[Case] = [
    ("s3", "store.mid_write", "chunks", SMALL),
    ("s3", "store.before_commit", "bytes", SMALL),
    ("s3", "store.before_commit", "path", SMALL),
    ("s3", "store.after_commit", "stream", SMALL),
    ("s3", "store.mid_multipart", "path", LARGE),
    ("s3", "store.mid_multipart@2", "chunks", LARGE),
    ("s3", "store.before_commit", "bytes", LARGE),
    ("s3", "store.after_commit", "path", LARGE),
]
REPAIRS: list[Case] = [
    *(("file", "store.set_aside", form, SMALL) for form in FORMS),
    *ON_FILE,
    ("s3", "store.set_aside", "bytes", SMALL),
    ("s3", "store.before_commit", "chunks", SMALL),
    ("s3", "store.after_commit", "path", SMALL),
    ("s3", "store.mid_multipart@2", "path", LARGE),
]
MOVES: list[tuple[str, str, Verb]] = [
    ("file", "store.moved", "trash"),
    ("file", "store.moved", "restore"),
    ("file", "store.moved", "quarantine"),
    # Nothing is renamed on S3: moving is copying and removing.
    ("s3", "store.move.copied", "trash"),
    ("s3", "store.move.copied", "restore"),
    ("s3", "store.move.copied", "quarantine"),
    ("s3", "store.moved", "trash"),
    ("s3", "store.moved", "restore"),
    ("s3", "store.moved", "quarantine"),
]


def run_into(fault: str, place: Place, payload: Payload, folder: Path, verb: Verb = "put") -> None:
    """Have a process killed by the fault, before anything is acknowledged to it."""
    marker, (point, _, _) = folder / "fired", fault.partition("@")
    armed = fault.replace(point, f"{point}:kill")
    with Writer(
        place.url, [payload], folder, verb, MUTOSCOPE_FAULT=armed, MUTOSCOPE_FAULT_MARKER=str(marker)
    ) as writer:
        assert writer.wait() == -signal.SIGKILL, writer.log
    assert marker.read_text() == f"{point}\n", "the fault must have fired"
    assert writer.acknowledged == []


@pytest.mark.parametrize(
    ("place", "fault", "form", "size"),
    few_now([*ON_FILE, *ON_S3], lambda *case: case in ON_FILE or case[3] == SMALL or case == ON_S3[4]),
    indirect=["place"],
)
def test_in_a_put(place: Place, tmp_path: Path, fault: str, form: str, size: int) -> None:
    store = ArtifactStore.open(place.url)
    put(store, EARLIER)
    payload = Payload(2, size, form)
    run_into(fault, place, payload, tmp_path / "writer")

    assert_sound(store, [EARLIER.digest])
    assert store.contains(payload.digest) == (fault == "store.after_commit")
    unfinished = place.unfinished()
    assert_repeatable(store, [payload])
    assert store.discard_unfinished(0.0) == 0, "writes that may be under way are left alone"
    assert store.discard_unfinished(LATER) == unfinished
    assert place.unfinished() == 0
    assert_sound(store, [EARLIER.digest, payload.digest])


@pytest.mark.parametrize(
    ("place", "fault", "form", "size"),
    few_now(REPAIRS, lambda place, fault, form, size: size == SMALL and (place == "s3" or form == FORMS[0])),
    indirect=["place"],
)
def test_in_a_put_that_repairs(place: Place, tmp_path: Path, fault: str, form: str, size: int) -> None:
    store = ArtifactStore.open(place.url)
    payload = Payload(2, size, form)
    put(store, payload)
    place.overwrite(payload.digest, lambda data: data[:-1] + b"!")
    run_into(fault, place, payload, tmp_path / "writer")

    assert store.verify(payload.digest) == ("sound" if fault == "store.after_commit" else "damaged")
    assert_repeatable(store, [payload])
    assert_sound(store, [payload.digest])
    assert {kept.digest for kept in store.quarantined()} == {payload.digest}, "kept for inspection"


@pytest.mark.parametrize(("place", "fault", "verb"), MOVES, indirect=["place"])
def test_in_a_move(place: Place, tmp_path: Path, fault: str, verb: Verb) -> None:
    store = ArtifactStore.open(place.url)
    payload = Payload(2, SMALL)
    put(store, payload)
    if verb == "restore":
        store.trash(payload.digest)
    if verb == "quarantine":
        place.rot(payload.digest, lambda data: data[:-1] + b"!")
    run_into(fault, place, payload, tmp_path / "mover", verb)

    if verb == "quarantine":
        store.quarantine(payload.digest)
        assert not store.contains(payload.digest)
        assert {kept.digest for kept in store.quarantined()} == {payload.digest}
        assert_repeatable(store, [payload])
    else:
        getattr(store, verb)(payload.digest)
        assert store.contains(payload.digest) == (verb == "restore")
        assert store.get(payload.digest) == payload.content, "readable at every moment, and now"
    assert_sound(store, [payload.digest])


def test_no_point_is_left_out() -> None:
    tried = {fault.partition("@")[0] for _, fault, *_ in [*ON_FILE, *ON_S3, *REPAIRS, *MOVES]}
    assert tried == {point for point in POINTS if point.startswith("store.")}
