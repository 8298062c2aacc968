"""A platform on which both generating cards have weights and a worker that paints noise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mutoscope.models.registry import get_card
from mutoscope.platform.orchestration.runtime import Runtime
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
