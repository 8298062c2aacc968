"""Many processes, few keys, one store. `MUTOSCOPE_RACES=20 pytest tests/faults/test_store_races.py` repeats
each race.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

from mutoscope.platform.artifacts import ArtifactStore
from tests.faults.stores import assert_sound
from tests.support import racers
from tests.support.places import FolderPlace, Place
from tests.support.writers import FORMS, Payload, put, put_all

PROCESSES = 8
ROUNDS = int(os.environ.get("MUTOSCOPE_RACES", "1"))

pytestmark = pytest.mark.parametrize("round_", range(ROUNDS), ids=lambda n: f"round{n}")


def payloads(place: Place) -> list[Payload]:
    """Objects of all forms and many sizes; fewer where each costs requests."""
    count = 300 if isinstance(place, FolderPlace) else 40
    return [Payload(seed, 1 + seed * 97, FORMS[seed % len(FORMS)]) for seed in range(count)]


def race(place: Place, wanted: Sequence[Payload]) -> None:
    """All processes put everything, each beginning elsewhere; all must be answered alike."""
    step = len(wanted) // PROCESSES
    orders = [[*wanted[n * step :], *wanted[: n * step]] for n in range(PROCESSES)]
    answers = racers.race(put_all, [(place.url, order, place.environment) for order in orders])
    digests = {payload.digest for payload in wanted}
    assert [set(answer) for answer in answers] == [digests] * PROCESSES


def test_equal_objects_put_at_once_are_stored_once(place: Place, round_: int) -> None:
    wanted = payloads(place)
    race(place, wanted)
    store = ArtifactStore.open(place.url)
    assert sorted(store.digests()) == sorted(payload.digest for payload in wanted)
    assert_sound(store, (payload.digest for payload in wanted))
    assert list(store.quarantined()) == [], "nobody took what another was writing for damage"
    assert place.unfinished() == 0


def test_repairs_at_once_end_with_sound_objects(place: Place, round_: int) -> None:
    wanted = payloads(place)[:30]
    store = ArtifactStore.open(place.url)
    for payload in wanted:
        put(store, payload)
        place.overwrite(payload.digest, lambda data: data[:-1])
    assert {store.verify(payload.digest) for payload in wanted} == {"damaged"}

    race(place, wanted)
    assert_sound(store, (payload.digest for payload in wanted))
    sizes = {(kept.digest, kept.size) for kept in store.quarantined()}
    assert sizes >= {(payload.digest, payload.size - 1) for payload in wanted}, "every damaged one is kept"
    assert place.unfinished() == 0
