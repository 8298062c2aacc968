"""Killing a process at every named moment of a put or a move: what was acknowledged stays, what was not can
be done again.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.faults import POINTS
from tests.faults.stores import LATER, assert_repeatable, assert_sound
from tests.support.places import Place
from tests.support.writers import FORMS, Form, Payload, Verb, Writer, put

EARLIER = Payload(1, 100_000)
SIZE = 5 << 19  # two and a half of the pieces in which streams are read

PUT = ("store.mid_write", "store.before_commit", "store.after_commit")
"""Points of every put of something new."""


def run_into(fault: str, place: Place, payload: Payload, folder: Path, verb: Verb = "put") -> None:
    """Have a process killed by the fault, before anything is acknowledged to it."""
    marker = folder / "fired"
    with Writer(
        place.url, [payload], folder, verb,
        MUTOSCOPE_FAULT=f"{fault}:kill", MUTOSCOPE_FAULT_MARKER=str(marker),
    ) as writer:  # fmt: skip
        assert writer.wait() == -signal.SIGKILL, writer.log
    assert marker.read_text() == f"{fault}\n", "the fault must have fired"
    assert writer.acknowledged == []


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("point", PUT)
def test_in_a_put(place: Place, tmp_path: Path, point: str, form: Form) -> None:
    store = ArtifactStore.open(place.url)
    put(store, EARLIER)
    payload = Payload(2, SIZE, form)
    run_into(point, place, payload, tmp_path / "writer")

    assert_sound(store, [EARLIER.digest])
    assert store.contains(payload.digest) == (point == "store.after_commit")
    unfinished = place.unfinished()
    assert_repeatable(store, [payload])
    assert store.discard_unfinished(0.0) == 0, "writes under way are left alone"
    assert store.discard_unfinished(LATER) == unfinished
    assert place.unfinished() == 0
    assert_sound(store, [EARLIER.digest, payload.digest])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("point", ["store.set_aside", *PUT])
def test_in_a_put_that_repairs(place: Place, tmp_path: Path, point: str, form: Form) -> None:
    store = ArtifactStore.open(place.url)
    payload = Payload(2, SIZE, form)
    put(store, payload)
    place.alter(payload.digest, lambda data: data[:-1] + b"!")
    run_into(point, place, payload, tmp_path / "writer")

    assert store.verify(payload.digest) == ("sound" if point == "store.after_commit" else "damaged")
    assert_repeatable(store, [payload])
    assert_sound(store, [payload.digest])
    assert {damaged.digest for damaged in store.quarantined()} == {payload.digest}, "kept for inspection"


MOVES: tuple[tuple[Verb, str], ...] = (
    ("trash", "store.moved"),
    ("restore", "store.moved"),
    ("quarantine", "store.moved"),
    ("trash", "store.move.copied"),
    ("restore", "store.move.copied"),
    ("quarantine", "store.move.copied"),
)


@pytest.mark.parametrize(("verb", "point"), MOVES)
def test_in_a_move(place: Place, tmp_path: Path, verb: Verb, point: str) -> None:
    if point == "store.move.copied" and place.url.startswith("file:"):
        pytest.skip("a file is renamed, not copied")
    store = ArtifactStore.open(place.url)
    payload = Payload(2, SIZE)
    put(store, payload)
    if verb == "restore":
        store.trash(payload.digest)
    if verb == "quarantine":
        place.alter(payload.digest, lambda data: data[:-1] + b"!")
    run_into(point, place, payload, tmp_path / "mover", verb)

    if verb == "quarantine":
        assert store.verify(payload.digest) != "sound"
        store.quarantine(payload.digest)
        assert not store.contains(payload.digest)
        assert {damaged.digest for damaged in store.quarantined()} == {payload.digest}
        assert_repeatable(store, [payload])
    else:
        assert store.get(payload.digest) == payload.content, "readable at every moment"
        getattr(store, verb)(payload.digest)
        assert store.contains(payload.digest) == (verb == "restore") or verb == "trash"
        assert store.get(payload.digest) == payload.content
    assert_sound(store, [payload.digest])


def test_no_point_is_left_out() -> None:
    tried = {*PUT, "store.set_aside", *(point for _, point in MOVES)}
    assert tried == {point for point in POINTS if point.startswith("store.")}
