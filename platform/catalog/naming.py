"""What a name that a person typed stands for: the one place that decides."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from mutoscope.platform.catalog.records import RunRecord
from mutoscope.platform.catalog.weights import WeightVersion
from mutoscope.platform.catalog.workflows import WorkflowRecord
from mutoscope.platform.errors import AmbiguousReference, UnknownReference
from mutoscope.platform.refs import ArtifactRef

if TYPE_CHECKING:
    from mutoscope.platform.catalog.catalog import Catalog

Named = ArtifactRef | WeightVersion | RunRecord | WorkflowRecord


def find_artifact(catalog: Catalog, name: str) -> ArtifactRef | WeightVersion:
    """The artifact (``video:3fa9``, ``3fa9``) or weight version (``flux-t2i/transformer@live``) of that name:
    either has the digest of bytes.

    Raises:
        UnknownReference, AmbiguousReference: none goes by that name, or several do.
    """
    return catalog.weights.get(name) if "@" in name else catalog.artifacts.resolve(name)


def find(catalog: Catalog, name: str) -> Named:
    """The artifact or weight version (see `find_artifact`), run or workflow run (the beginning of an id) of
    that name. Digests come before ids.

    Raises:
        UnknownReference: nothing goes by that name.
        AmbiguousReference: several do, a run and a workflow run among them: ids begin with the time, so those
            of one minute share their first eight digits.
    """
    try:
        return find_artifact(catalog, name)
    except UnknownReference as unknown:
        found: list[RunRecord | WorkflowRecord] = []
        with suppress(UnknownReference):
            found.append(catalog.runs.find(name))
        with suppress(UnknownReference):
            found.append(catalog.workflows.find(name))
        if not found:
            raise unknown from None
    if len(found) > 1:
        run, workflow_run = found
        raise AmbiguousReference(
            f"{name!r} begins the ids of run {run.id} and of workflow run {workflow_run.id}: add digits"
        )
    return found[0]
