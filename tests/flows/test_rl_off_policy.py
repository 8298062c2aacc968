"""Collector and trainer apart: what is taken, in which order, and what is too old by then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mutoscope.flows.rl.asks import Ask
from mutoscope.flows.rl.batches import COLLECTOR, FOLLOW
from mutoscope.flows.rl.collecting import collect
from mutoscope.flows.rl.grouping import Shape
from mutoscope.flows.rl.settling import Plan
from mutoscope.flows.rl.stages import Stage
from mutoscope.flows.rl.training import train
from mutoscope.models.registry import cards
from mutoscope.platform.errors import RunFailed
from mutoscope.platform.orchestration.context import WorkflowContext, current_workflow
from mutoscope.platform.orchestration.liveness import Hold
from mutoscope.platform.orchestration.publish import Publications
from mutoscope.platform.orchestration.registry import REGISTRY
from mutoscope.platform.training import notes
from tests.support.trainings import OTHER, PROMPT, School, lesson

HEAD = "flux-t2i/transformer"
NAME = "apart"


@pytest.fixture
def school(tmp_path: Path) -> Iterator[School]:
    opened = School(tmp_path / "home")
    with opened.teaching():
        yield opened
    opened.close()


async def collection(school: School, version: str, seed: int, follow: str = NAME) -> list[str]:
    """What a start of the collector makes, two groups; the digests of their records."""
    asked = school.catalog.workflows.start(COLLECTOR, {FOLLOW: follow})
    context = WorkflowContext(
        run_id=asked,
        chain=(COLLECTOR,),
        allowed=frozenset(cards()),
        page="",
        publications=Publications(COLLECTOR),
        registry=REGISTRY,
        hold=Hold(asked),
        origin="test",
    )
    token = current_workflow.set(context)
    try:
        made = await collect(
            Plan(
                stages=[Stage("flux-t2i", {"transformer": version}, {"num_inference_steps": 3})],
                asks=[Ask(prompt=PROMPT), Ask(prompt=OTHER)],
                shape=Shape(3),
                rewards={"reward-scene": 1.0},
                seed=seed,
            )
        )
    finally:
        current_workflow.reset(token)
    school.catalog.workflows.finish(asked, "succeeded")
    return [group.rollout.digest for group in made.groups["flux-t2i"]]


async def test_rollouts_are_taken_once_in_order_while_they_are_not_too_old(school: School) -> None:
    collected = [await collection(school, f"{HEAD}@1", seed) for seed in (1, 2, 3)]
    await collection(school, f"{HEAD}@1", 4, follow="another")
    asked = lesson(iterations=3, off_policy=1, patience_seconds=0.5, evaluation=None)
    with pytest.raises(
        RunFailed, match=r"waited 0\.5 s for rollouts: start rl\.data_generation with follow=apart"
    ):
        await train(NAME, asked)
    records = school.noted(NAME, notes.ITERATION)
    taken = [record["rollouts"]["cards"]["flux-t2i"]["records"] for record in records.values()]
    assert [sorted(each) for each in taken] == [sorted(each) for each in collected[:2]]
    metrics = [record["metrics"][HEAD] for record in records.values()]
    assert [each["staleness_max"] for each in metrics] == [0, 1]
    assert metrics[0]["delta_log_p"] < 1e-5 < metrics[1]["delta_log_p"], "how far the policy has gone since"

    fresh = await collection(school, f"{HEAD}@3", 5)
    made = await train(NAME, asked)
    assert made.heads == {HEAD: f"{HEAD}@4"}
    last = school.noted(NAME, notes.ITERATION)[2]
    assert sorted(last["rollouts"]["cards"]["flux-t2i"]["records"]) == sorted(fresh)
    assert last["rollouts"]["passed_over"] == dict.fromkeys(collected[2], 2)
