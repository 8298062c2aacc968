"""Checking that every row has its bytes, on a schedule."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Annotated

from prefect.artifacts import MarkdownArtifact
from prefect.logging import get_run_logger
from pydantic import Field

from mutoscope.platform.custody.fsck import Repair, Report, fsck
from mutoscope.platform.errors import ArtifactCorrupt
from mutoscope.platform.orchestration.runtime import Runtime, get_runtime
from mutoscope.platform.orchestration.workflow import workflow
from mutoscope.platform.wording import byte_size, markdown_table, several

Deep = Annotated[
    bool, Field(title="Read every byte", description="Off: presence, sizes, manifests and rows only.")
]
Repairing = Annotated[
    bool, Field(title="Repair", description="Set right what can be set right, as `mutoscope fsck --repair`.")
]

KEPT = 100
"""Findings told one by one; all are counted."""


@workflow("maintenance.verify_store")
async def verify_store(deep: Deep = True, repair: Repairing = False) -> dict[str, int]:
    """Check rows against bytes, both ways, and rows against each other, while everything runs.

    Fails while a fault is left, so that a schedule on this deployment, and an automation on its failure,
    tell when a disk begins to rot. Returns how many faults were repaired and notes made, by name.
    """
    report, told = await asyncio.to_thread(_check, get_runtime(), deep, repair)
    logger = get_run_logger()
    for outcome in told:
        level = logging.WARNING if outcome.finding.is_fault else logging.INFO
        done = f": {outcome.did}" if outcome.did else ""
        logger.log(level, "%s, %s%s", outcome.finding.rule.code, outcome.finding, done)
    await MarkdownArtifact(
        key="fsck", description="What a check of the store found", markdown=_summary(report, told)
    ).acreate()
    if not report.clean:
        left = ", ".join(f"{count} {code}" for code, count in sorted(report.left.items()))
        faults = several(sum(report.left.values()), "fault")
        raise ArtifactCorrupt(f"{faults} left in store and catalog, {left}: look with `mutoscope fsck`")
    return dict(report.found)


def _check(runtime: Runtime, deep: bool, repair: bool) -> tuple[Report, list[Repair]]:
    report = Report()
    told: list[Repair] = []
    for outcome in fsck(runtime.catalog, runtime.store, deep=deep, repair=repair, report=report):
        if len(told) < KEPT:
            told.append(outcome)
    return report, told


def _summary(report: Report, told: Sequence[Repair]) -> str:
    tally = report.tally
    read = f", {byte_size(tally.bytes)} read" if tally.bytes else ""
    verdict = "**Clean.**" if report.clean else f"**{several(sum(report.left.values()), 'fault')} left.**"
    lines = [
        f"{verdict} {several(tally.rows, 'artifact')} and {several(tally.objects, 'object')} checked{read}."
    ]
    if told:
        rows = [(one.finding.rule.level, one.finding.rule.code, one.finding, one.did or "") for one in told]
        lines += ["", markdown_table(("level", "code", "what", "done"), rows)]
    more = sum(report.found.values()) - len(told)
    return "\n".join([*lines, *([f"\nand {more} more"] if more else [])])
