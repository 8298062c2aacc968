"""A platform on which the generating cards have weights and a worker that paints noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from mutoscope.models.registry import get_card
from mutoscope.platform.artifacts import codecs
from mutoscope.platform.catalog import RunRecord
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.refs import ArtifactRef
from tests.support.computing import MEDIA, compute_or_paint
from tests.support.fake_worker import FakeWorker, publish_weights
from tests.support.platform import platform_in

COMMON = {"height": 64, "width": 64, "sizes": ((64, 64),), "num_inference_steps": 4, "guidance_scale": 2.0}


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    with platform_in(tmp_path) as opened:
        for card in (get_card("flux-t2i"), get_card("wan-i2v")):
            publish_weights(opened, card, card.recipe.model_validate({**COMMON, "max_sequence_length": 16}))
        yield opened


@pytest.fixture
def worker(runtime: Runtime) -> Iterator[FakeWorker]:
    with FakeWorker(runtime, ("flux-t2i", "wan-i2v")).serving() as serving:
        yield serving


Work = Callable[[Runtime, RunRecord], dict[str, ArtifactRef]]


class Studio:
    """A runtime and what its worker was given to do."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.work: Work = compute_or_paint
        self._seen: set[str] = set()

    def perform(self, runtime: Runtime, run: RunRecord) -> dict[str, ArtifactRef]:
        return self.work(runtime, run)

    def computed(self) -> dict[str, int]:
        """Runs by card that were computed since the last time this was asked."""
        runs = [
            run
            for run in self.runtime.catalog.runs.list(limit=1000)
            if run.replayable and run.id not in self._seen
        ]
        self._seen |= {run.id for run in runs}
        return dict(Counter(str(run.card) for run in runs))

    def pixels(self, ref: ArtifactRef) -> np.ndarray:
        return np.asarray(codecs.decode(ref.kind, self.runtime.store.get(ref.digest), ref.media_type))


@pytest.fixture
def studio(runtime: Runtime) -> Iterator[Studio]:
    scene = get_card("reward-scene")
    publish_weights(runtime, scene, scene.recipe.model_validate({}))
    made = Studio(runtime)
    cards = ("flux-t2i", "wan-i2v", "reward-scene", *MEDIA)
    with FakeWorker(runtime, cards, perform=made.perform).serving():
        yield made
