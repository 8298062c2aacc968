"""Collecting what nothing keeps, on a schedule."""

from __future__ import annotations

import asyncio
from typing import Annotated

from prefect.artifacts import MarkdownArtifact
from pydantic import Field

from mutoscope.platform.custody.collect import Collector
from mutoscope.platform.custody.plan import plan
from mutoscope.platform.custody.summary import collection_summary, plan_summary
from mutoscope.platform.durations import parse_duration
from mutoscope.platform.orchestration.runtime import get_runtime
from mutoscope.platform.orchestration.workflow import workflow

DryRun = Annotated[bool, Field(title="Dry run", description="Say what would go, and change nothing.")]
Grace = Annotated[
    str,
    Field(
        title="Grace",
        pattern=r"^\s*\d+(\.\d+)?\s*[smhdw]\s*$",
        description="How long what is collected can be brought back: 12h, 7d.",
    ),
]


@workflow("maintenance.collect")
async def collect_garbage(dry_run: DryRun = False, grace: Grace = "7d") -> dict[str, int]:
    """Move what nothing keeps to the trash, and remove what has been there for longer than the grace period.

    What is kept is up to pins, aliases, runs in flight and retention rules; see `mutoscope gc --help`. Give
    this deployment a schedule to collect every night. Returns the counts, which its artifact shows too.
    """
    runtime, seconds = get_runtime(), parse_duration("grace", grace)
    if dry_run:
        looked = await asyncio.to_thread(plan, runtime.catalog, runtime.store, seconds)
        summary = plan_summary(looked)
        counts = {"collected": looked.total.count, "collected_bytes": looked.total.size}
    else:
        collector = Collector(runtime.catalog, runtime.store)
        done = await asyncio.to_thread(collector.collect, seconds)
        summary, counts = collection_summary(done), dict(done.counts)
    described = "What a collection would do" if dry_run else "What a collection did"
    await MarkdownArtifact(key="collection", description=described, markdown=summary).acreate()
    return counts
