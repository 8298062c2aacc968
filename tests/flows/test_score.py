"""The scoring flow against a Prefect server and a worker that makes up scores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId

from mutoscope.flows.generate.score import TARGETS, score
from mutoscope.flows.parameters import RewardCard
from mutoscope.models.registry import get_card
from mutoscope.platform.artifacts import codecs
from mutoscope.platform.custody.pages_path import folder_of
from mutoscope.platform.errors import InvalidParameter, RunFailed
from mutoscope.platform.orchestration.pages import RUN_PAGES
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.refs import ArtifactRef
from mutoscope.platform.reward import told
from tests.support.fake_worker import FakeWorker, publish_weights
from tests.support.platform import platform_in

pytestmark = pytest.mark.usefixtures("prefect_server")


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    with platform_in(tmp_path) as opened:
        for card_id in TARGETS:
            card = get_card(card_id)
            publish_weights(opened, card, card.recipe())
        yield opened


@pytest.fixture
def worker(runtime: Runtime) -> Iterator[FakeWorker]:
    with FakeWorker(runtime, tuple(TARGETS)).serving() as serving:
        yield serving


def a(kind: str, runtime: Runtime) -> ArtifactRef:
    shape, meta = ((4, 4, 3), {}) if kind == "image" else ((2, 16, 16, 3), {"fps": 8})
    encoded = codecs.encode(kind, np.zeros(shape, np.uint8), meta)
    ref = runtime.store.put(encoded.data, kind=kind, media_type=encoded.media_type, meta=encoded.meta)
    runtime.catalog.artifacts.record(ref)
    return ref


@pytest.mark.parametrize(("card", "kind"), [("reward-scene", "video"), ("reward-ocr", "image")])
async def test_a_sample_is_scored_and_the_score_is_shown(
    card: RewardCard, kind: str, runtime: Runtime, worker: FakeWorker
) -> None:
    sample = a(kind, runtime)
    ref = await score(reward=card, prompt="a red circle", **{kind: sample})
    (run,) = runtime.catalog.runs.list(kind="reward")
    assert runtime.catalog.runs.inputs(run.id) == {kind: sample}
    assert run.parameters[TARGETS[card]] == "a red circle"
    (workflow,) = runtime.catalog.workflows.list()
    async with get_client() as client:
        chosen = ArtifactFilterFlowRunId(any_=[UUID(str(workflow.prefect_flow_run_id))])
        shown = await client.read_artifacts(artifact_filter=ArtifactFilter(flow_run_id=chosen))
    (said,) = [artifact for artifact in shown if artifact.key == f"{card}-reward"]
    assert told(ref.meta) in str(said.data)
    assert str(ref) in str(said.data)
    RUN_PAGES.drain()
    page = (runtime.store.published(f"{folder_of(workflow)}/index.html") or b"").decode()
    assert page.count(told(ref.meta)) == 2, "among the outputs, and in the lineage"


async def test_an_unknown_reward_is_refused(runtime: Runtime, worker: FakeWorker) -> None:
    with pytest.raises(InvalidParameter, match=r"^reward='reward-taste' is not valid"):
        await score(reward="reward-taste", prompt="a", image=a("image", runtime))  # type: ignore[arg-type]


async def test_a_run_that_fails_fails_the_flow_with_its_line(runtime: Runtime) -> None:
    def perform(runtime: Runtime, run: object) -> dict[str, ArtifactRef]:
        raise InvalidParameter("image", None, "reward-scene needs an image or a video to score")

    with (
        FakeWorker(runtime, tuple(TARGETS), perform).serving(),
        pytest.raises(RunFailed, match="needs an image or a video to score"),
    ):
        await score(reward="reward-scene", prompt="a red circle")
