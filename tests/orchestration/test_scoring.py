"""A reward for every sample: what ends a run, and what its caller gets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from mutoscope.models.registry import get_card
from mutoscope.platform.artifacts import codecs
from mutoscope.platform.catalog import RunRecord
from mutoscope.platform.catalog.tree import render_tree
from mutoscope.platform.errors import InvalidParameter, NoWorker, ScoreTimeout
from mutoscope.platform.orchestration.plan import plan_run
from mutoscope.platform.orchestration.replay import replay_run
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.orchestration.scoring import read_reward, score
from mutoscope.platform.refs import ArtifactRef
from tests.support.deadline import until
from tests.support.fake_worker import FakeWorker, paint, publish_weights
from tests.support.platform import platform_in

CARD = get_card("reward-scene")
PROMPT = "a red circle"


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    with platform_in(tmp_path) as opened:
        publish_weights(opened, CARD, CARD.recipe())
        yield opened


@pytest.fixture
def image(runtime: Runtime) -> ArtifactRef:
    encoded = codecs.encode("image", np.zeros((4, 4, 3), np.uint8), {})
    ref = runtime.store.put(encoded.data, kind="image", media_type=encoded.media_type, meta=encoded.meta)
    runtime.catalog.artifacts.record(ref)
    return ref


@pytest.fixture
def serving(runtime: Runtime) -> Iterator[FakeWorker]:
    with FakeWorker(runtime, (CARD.id,)).serving() as worker:
        yield worker


async def test_a_score_and_its_artifact(runtime: Runtime, image: ArtifactRef, serving: FakeWorker) -> None:
    scored = await score(CARD.id, image=image, prompt=PROMPT)
    assert scored.ref is not None
    assert scored.reward == read_reward(runtime, scored.ref)
    assert scored.ref.meta == {"status": "score", "score": scored.reward.score}


async def test_runs_are_reward_runs_and_equal_ones_share(
    runtime: Runtime, image: ArtifactRef, serving: FakeWorker
) -> None:
    """A scorer draws nothing, so no drawn seed keeps two equal scorings apart."""
    first = await score(CARD.id, image=image, prompt=PROMPT)
    second = await score(CARD.id, image=image, prompt=PROMPT)
    assert first == second
    (run,) = runtime.catalog.runs.list(kind="reward")
    assert (run.card, run.seed, serving.done) == (CARD.id, 0, [run.id])
    with pytest.raises(
        InvalidParameter, match=r"^seed=7 is not valid: leave it out: reward-scene draws nothi"
    ):
        await score(CARD.id, image=image, prompt=PROMPT, seed=7)


async def test_the_image_leads_to_its_reward_and_the_scorer_to_all_it_scored(
    runtime: Runtime, image: ArtifactRef, serving: FakeWorker
) -> None:
    scored = await score(CARD.id, image=image, prompt=PROMPT)
    assert scored.ref is not None
    live = runtime.catalog.weights.live(CARD.id)
    down = runtime.catalog.lineage.down(image.digest)
    assert scored.ref.digest in down.artifacts
    assert f"reward: {scored.ref}  score {scored.reward.score:.4f}" in render_tree(down)
    assert scored.ref.digest in runtime.catalog.lineage.down(live["scorer"].digest).artifacts
    uses = runtime.catalog.lineage.weights_of(scored.ref.digest)
    assert {(use.component, use.digest) for use in uses} == {(n, v.digest) for n, v in live.items()}


async def test_a_reward_can_be_replayed(runtime: Runtime, image: ArtifactRef, serving: FakeWorker) -> None:
    await score(CARD.id, image=image, prompt=PROMPT)
    (run,) = runtime.catalog.runs.list(kind="reward")
    assert (await replay_run(run.id, runtime=runtime)).equal


def failing(error: Exception) -> Callable[[Runtime, RunRecord], dict[str, ArtifactRef]]:
    def perform(runtime: Runtime, run: RunRecord) -> dict[str, ArtifactRef]:
        raise error

    return perform


@pytest.mark.parametrize(
    ("error", "status"),
    [(ScoreTimeout("reward-scene took too long"), "timeout"), (RuntimeError("the scorer broke"), "failed")],
)
async def test_a_run_without_a_reward_is_no_score_of_zero(
    runtime: Runtime, image: ArtifactRef, error: Exception, status: str
) -> None:
    with FakeWorker(runtime, (CARD.id,), failing(error)).serving():
        scored = await score(CARD.id, image=image, prompt=PROMPT)
    assert (scored.reward.status, scored.reward.score, scored.ref) == (status, None, None)
    assert str(error) in str(scored.reward.reason)
    (run,) = runtime.catalog.runs.list(kind="reward")
    assert run.state == "failed"


async def test_such_a_run_is_not_remembered(runtime: Runtime, image: ArtifactRef) -> None:
    """Time is no property of the sample: the next request computes."""
    with FakeWorker(runtime, (CARD.id,), failing(ScoreTimeout("late"))).serving():
        assert (await score(CARD.id, image=image, prompt=PROMPT)).reward.status == "timeout"
    with FakeWorker(runtime, (CARD.id,)).serving():
        assert (await score(CARD.id, image=image, prompt=PROMPT)).reward.status == "score"


async def test_patience_ends_the_wait_and_withdraws_the_run(runtime: Runtime, image: ArtifactRef) -> None:
    release = threading.Event()

    def hold(runtime: Runtime, run: RunRecord) -> dict[str, ArtifactRef]:
        assert release.wait(120)
        return paint(runtime, run)

    with FakeWorker(runtime, (CARD.id,), hold).serving():
        try:
            scored = await score(CARD.id, image=image, prompt=PROMPT, patience=0.05)
        finally:
            release.set()
        assert (scored.reward.status, scored.ref) == ("timeout", None)
        assert scored.reward.reason == "there was no score within 0.05 s"
        (run,) = runtime.catalog.runs.list(kind="reward")
        until(lambda: runtime.catalog.runs.get(run.id).state == "cancelled", "the run to be cancelled")


async def test_a_caller_at_fault_is_told(runtime: Runtime, image: ArtifactRef) -> None:
    """No sample is to blame for a misspelt parameter, or for a card that nobody serves."""
    with pytest.raises(InvalidParameter, match="reward-scene takes frames, time_limit, prompt"):
        await score(CARD.id, image=image, promt=PROMPT)
    with pytest.raises(NoWorker):
        await score(CARD.id, image=image, prompt=PROMPT)


def test_key_parts_pin_the_scorer(runtime: Runtime, image: ArtifactRef) -> None:
    before = plan_run(runtime, CARD.id, {"image": image, "prompt": PROMPT}, seed=None)
    publish_weights(runtime, CARD, CARD.recipe(), salt=" retrained")
    after = plan_run(runtime, CARD.id, {"image": image, "prompt": PROMPT}, seed=None)
    assert before.kind == after.kind == "reward"
    assert before.memo_key != after.memo_key
    changed = {part for part in before.key_parts if before.key_parts[part] != after.key_parts[part]}
    assert changed == {"weights"}
