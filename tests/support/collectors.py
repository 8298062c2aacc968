"""Processes around a collector: ones that die at a named point, and ones that write and read meanwhile."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.catalog.collections import CollectionRecord, CollectionUnderWay
from mutoscope.platform.custody.collect import Collector
from tests.support import forked  # noqa: F401  # sets up what the one fork server of a test process imports
from tests.support.deadline import until

LEASE_S = 1.0
"""Of a collection in tests: how soon a killed one may be taken over."""


def content(name: str) -> bytes:
    return name.encode() * 400


def collect_until_killed(catalog_url: str, store_url: str, fault: str, marker: Path) -> int | None:
    """Collect in a process of its own, with a fault armed; its exit code."""
    environment = {"MUTOSCOPE_FAULT": fault, "MUTOSCOPE_FAULT_MARKER": str(marker)}
    process = multiprocessing.get_context("forkserver").Process(
        target=_collect, args=(catalog_url, store_url, dict(os.environ) | environment)
    )
    process.start()
    process.join()
    return process.exitcode


def _collect(catalog_url: str, store_url: str, environment: Mapping[str, str]) -> None:
    os.environ.update(environment)
    Collector(Catalog.open(catalog_url), ArtifactStore.open(store_url), lease_seconds=LEASE_S).collect(0.0)


def succeed(catalog: Catalog, store: ArtifactStore) -> CollectionRecord:
    """Collect as soon as the dead collector's lease has run out."""

    def attempt() -> CollectionRecord | None:
        try:
            return Collector(catalog, store, lease_seconds=LEASE_S).collect(0.0)
        except CollectionUnderWay:
            return None

    return until(attempt, "the dead collection to be taken over")


def play(
    role: str,
    catalog_url: str,
    store_url: str,
    names: Sequence[str],
    finished: str,
    environment: Mapping[str, str],
) -> list[str]:
    """Write, read or collect beside the others.

    Args:
        names: whose bytes exist, and have had their time.
        finished: a folder in which each writer leaves a file when it is done.

    Returns:
        Digests that a writer was told are recorded; those that a reader has read.
    """
    os.environ.update(environment)
    catalog, store = Catalog.open(catalog_url), ArtifactStore.open(store_url)
    try:
        match role:
            case "write":
                return _write(catalog, store, names, Path(finished))
            case "read":
                return _read(catalog, store, names, Path(finished))
            case _:
                return _collect_all_the_time(catalog, store, Path(finished))
    finally:
        catalog.close()


def _write(catalog: Catalog, store: ArtifactStore, names: Sequence[str], finished: Path) -> list[str]:
    recorded = []
    for name in names:
        with catalog.leases.writing(f"writer {os.getpid()}"):
            ref = store.put(content(name), kind="latent", media_type="application/octet-stream")
            catalog.runs.record_completed("engine", generated={"latent": ref})
        recorded.append(ref.digest)
        assert store.get(ref.digest) == content(name), "acknowledged and gone"
    (finished / str(os.getpid())).touch()
    return recorded


def _read(catalog: Catalog, store: ArtifactStore, names: Sequence[str], finished: Path) -> list[str]:
    read = []
    while True:
        last = _writers_are_done(finished)
        for name in names:
            digest = catalog.artifacts.resolve(_digest(name)).digest
            with catalog.leases.reading([digest], f"reader {os.getpid()}"):
                if catalog.artifacts.state(digest) == "present":
                    assert store.get(digest) == content(name), "held by a lease and gone"
                    read.append(digest)
        if last:
            return read


def _collect_all_the_time(catalog: Catalog, store: ArtifactStore, finished: Path) -> list[str]:
    """Without any grace."""
    done = []
    while True:
        last = _writers_are_done(finished)
        try:
            done.append(Collector(catalog, store).collect(0.0).id)
        except CollectionUnderWay:
            continue
        if last:
            return done


def _writers_are_done(finished: Path) -> bool:
    return len(list(finished.iterdir())) >= WRITERS


def _digest(name: str) -> str:
    from mutoscope.platform.ids import sha256

    return sha256(content(name))


WRITERS = 8
