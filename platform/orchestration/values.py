"""JSON data that a workflow returns, as artifacts: what it concluded is kept like what it made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mutoscope.platform.custody.users import register
from mutoscope.platform.orchestration.context import WorkflowContext
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.refs import ArtifactRef

RUN_KIND = "conclusion"
"""Kind of the run that stands for the workflow's own code as the maker of its data."""


def keep_values(
    runtime: Runtime, context: WorkflowContext, values: Mapping[str, Any]
) -> dict[str, ArtifactRef]:
    """Store data by output name, and record that the workflow execution made it.

    Raises:
        InvalidParameter: no JSON, such as a number that is not finite.
        StoreUnwritable: the store refuses.
    """
    if not values:
        return {}
    from mutoscope.platform.artifacts.codecs import json  # here: the codecs bring a video library

    encoded = {name: json.encode(value, {}) for name, value in values.items()}
    catalog, store = runtime.catalog, runtime.store
    register(catalog, store)
    with catalog.leases.writing(f"outputs of workflow run {context.run_id}"):
        refs = {
            name: store.put(each.data, kind="json", media_type=each.media_type, meta=each.meta)
            for name, each in encoded.items()
        }
        catalog.runs.record_completed(
            RUN_KIND,
            parameters={"workflow": context.workflow},
            generated=refs,
            workflow_run_id=context.run_id,
        )
    return refs
