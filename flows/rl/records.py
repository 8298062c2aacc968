"""What a training writes down: JSON in the store, and a note in the catalog that leads to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mutoscope.platform.catalog import Note
from mutoscope.platform.custody.users import register
from mutoscope.platform.orchestration.context import current_workflow
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.refs import ArtifactRef
from mutoscope.platform.training import notes
from mutoscope.platform.training.notes import RECORD


def write(
    runtime: Runtime,
    name: str,
    title: str,
    iteration: int,
    record: Mapping[str, Any],
    *,
    used: Mapping[str, ArtifactRef] | None = None,
    pictures: Mapping[str, ArtifactRef] | None = None,
) -> Note:
    """Note something of an iteration; what was noted before is found again.

    Args:
        used: what it rests on, by role. pictures: of it, already recorded.

    Raises:
        InvalidParameter: it was noted before and said otherwise.
        StoreUnwritable: the store refuses.
    """
    from mutoscope.platform.artifacts.codecs import json as plain  # here: the codecs bring a video library

    encoded = plain.encode(dict(record), {})
    catalog, store = runtime.catalog, runtime.store
    register(catalog, store)
    context = current_workflow.get()
    with catalog.leases.writing(f"notes of training {name}"):
        ref = store.put(encoded.data, kind="json", media_type=encoded.media_type, meta=encoded.meta)
        return catalog.trainings.note(
            name,
            title,
            iteration,
            {RECORD: ref, **(pictures or {})},
            used=used,
            workflow_run_id=context.run_id if context else None,
        )


def read(runtime: Runtime, name: str, title: str, iteration: int) -> Mapping[str, Any] | None:
    """What was noted; None if nothing was."""
    found = read_all(runtime, name, title, [iteration])
    return found[iteration] if found else None


def read_all(
    runtime: Runtime, name: str, title: str, iterations: Iterable[int]
) -> dict[int, Mapping[str, Any]]:
    """What was noted, by iteration, in their order."""
    return notes.read_all(runtime.catalog, runtime.store, name, title, iterations)


def numbered(name: str, refs: Iterable[ArtifactRef]) -> dict[str, ArtifactRef]:
    """References by the roles ``name.0``, ``name.1`` and so on."""
    return {f"{name}.{at}": ref for at, ref in enumerate(refs)}
