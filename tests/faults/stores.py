"""What has to hold for a store after any fault."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from mutoscope.platform.artifacts import ArtifactStore
from tests.support.writers import Payload, put

LATER = 2.0**33
"""A time after every test, in seconds since the epoch."""


def assert_sound(store: ArtifactStore, acknowledged: Iterable[str]) -> None:
    """Nothing that was acknowledged is lost, nothing half-written has a name, nothing is where it should
    not be."""
    stored = set(store.digests())
    assert stored >= set(acknowledged)
    assert {digest: store.verify(digest) for digest in stored} == dict.fromkeys(stored, "sound")
    assert list(store.foreign()) == []


def assert_repeatable(store: ArtifactStore, payloads: Iterable[Payload]) -> None:
    """What was interrupted can be done again, and reads back."""
    for payload in payloads:
        assert put(store, payload) == payload.digest
        assert store.get(payload.digest) == payload.content


def files(folder: Path) -> set[str]:
    """Top folders below the store's root that hold a file."""
    return {path.relative_to(folder).parts[0] for path in folder.rglob("*") if path.is_file()}
