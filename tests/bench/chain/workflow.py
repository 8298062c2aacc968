"""The chain as a workflow of ours."""

from __future__ import annotations

from mutoscope.platform.orchestration.engine_run import engine_run
from mutoscope.platform.orchestration.kinds import Text
from mutoscope.platform.orchestration.workflow import workflow
from tests.bench.chain import link
from tests.bench.chain.card import LINK


@workflow("bench.chain", requires=[LINK.id], name="chain")
async def chain(start: int, steps: int) -> Text:
    """Each step takes the artifact of the one before."""
    return await links(start, steps)


async def links(start: int, steps: int) -> Text:
    """The same outside any workflow."""
    made = await engine_run(LINK.id, start=link.start(start).decode(), position=0)
    for position in range(1, steps):
        made = await engine_run(LINK.id, previous=made["artifact"], position=position)
    return made["artifact"]
