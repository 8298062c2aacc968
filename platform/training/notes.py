"""What a training noted in the catalog, read again. No torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.training.curves import series

ITERATION, EVALUATION, HALT, TIMING, BATCH, CURVES = (
    *("iteration", "evaluation", "halt"),
    *("timing", "batch", "curves"),
)
"""Titles of notes."""

RECORD = "record"
"""The role of a note's JSON."""


def read_all(
    catalog: Catalog, store: ArtifactStore, name: str, title: str, iterations: Iterable[int]
) -> dict[int, Mapping[str, Any]]:
    """What was noted, by iteration, in their order.

    Raises:
        ArtifactMissing, ArtifactCorrupt: of a note.
    """
    notes = catalog.trainings.notes(name, title, iterations)
    return {note.iteration: json.loads(store.get(note.artifacts[RECORD].digest)) for note in notes}


def curves_of(catalog: Catalog, store: ArtifactStore, name: str, until: int) -> dict[str, Any]:
    """The curves of the iterations before `until`, as the card `line-charts` takes them. Raises as
    `read_all`."""
    iterations, evaluations, timings, halts = (
        read_all(catalog, store, name, title, range(until + 1))
        for title in (ITERATION, EVALUATION, TIMING, HALT)
    )
    before = {at: record for at, record in iterations.items() if at < until}
    return series(name, before, evaluations, timings, halts)
