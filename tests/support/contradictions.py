"""Nothing in a catalog contradicts anything else in it."""

from __future__ import annotations

import inspect

from mutoscope.platform.catalog import Catalog


def contradictions(catalog: Catalog) -> dict[str, list[object]]:
    """What every question of `catalog.contradictions` finds, those left out that find nothing."""
    asked = {
        name: question
        for name, question in inspect.getmembers(catalog.contradictions, inspect.ismethod)
        if name[0] != "_" and not inspect.signature(question).parameters
    }
    assert len(asked) >= 5
    found = {name: list(question()) for name, question in asked.items()}
    return {name: anomalies for name, anomalies in found.items() if anomalies}
