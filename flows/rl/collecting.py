"""Rollouts of many prompts: what is asked is settled first, then groups are sampled side by side.

Versions are pinned at the start, and every draw comes from the training's seed, the iteration and the
prompt's place: whoever collects the same again gets the same records, what succeeded before from the memo.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from mutoscope.flows.rl.asks import Ask
from mutoscope.flows.rl.collected import Collected, Group
from mutoscope.flows.rl.grouping import sampled_group
from mutoscope.flows.rl.sampling import Sampler
from mutoscope.flows.rl.settling import Limits, Plan, settle
from mutoscope.flows.rl.stages import Settled
from mutoscope.platform.orchestration.fan_out import for_each
from mutoscope.platform.orchestration.patience import Patience
from mutoscope.platform.orchestration.runtime import Runtime, get_runtime
from mutoscope.platform.refs import ArtifactRef
from mutoscope.platform.training.groups import Draw


async def collect(plan: Plan) -> Collected:
    """Sample a group of every prompt.

    Raises:
        InvalidInput: what is asked cannot be done; nothing was queued.
        NoWorker: nobody serves one of the cards.
    """
    runtime = get_runtime()
    patience = Patience(runtime.settings.catalog_patience_seconds)
    settled = await patience.ask(settle, runtime, plan)
    at_once = asyncio.Semaphore(plan.at_once)
    stale: str | None = None

    async def group(numbered: tuple[int, tuple[Ask, Sequence[ArtifactRef]]]) -> list[Group] | None:
        nonlocal stale
        if stale is None and plan.limits.follow is not None:
            stale = await patience.ask(_stale, runtime, settled.stages, plan.limits)
        if stale is not None:
            return None
        number, (ask, images) = numbered
        draw = Draw(seed=plan.seed, iteration=plan.iteration, prompt_index=number)
        waits = (plan.limits.queue_seconds, plan.limits.score_seconds)
        sampler = Sampler(settled.stages, settled.scorers, ask, draw, images, *waits)
        return await sampled_group(sampler, plan.shape, at_once)

    # One group more than fills the pool: its first samples begin while others' last ones end.
    groups_at_once = math.ceil(plan.at_once / plan.shape.samples) + 1
    made = await for_each(list(enumerate(settled.asks)), group, at_most=groups_at_once)
    found = [groups for groups in made if groups is not None]
    by_card = {
        stage.card.id: tuple(groups[at] for groups in found) for at, stage in enumerate(settled.stages)
    }
    return Collected(by_card, stale or settled.stopped)


def _stale(runtime: Runtime, stages: Sequence[Settled], limits: Limits) -> str | None:
    """Why the pinned versions are too old by now; None if they are not."""
    for stage in stages:
        heads = runtime.catalog.weights.aliased(stage.card.weights_card, str(limits.follow))
        for component, head in heads.items():
            own = stage.versions.get(component)
            if own is not None and (behind := head.ordinal - own.ordinal) > limits.max_staleness:
                return f"stale: {head} is {behind} ahead of {own}, at most {limits.max_staleness} allowed"
    return None
