"""A platform with the near-empty card, its weights live, and nobody serving it yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mutoscope.platform.orchestration.runtime import Runtime
from tests.support.fake_worker import FakeWorker, publish_weights
from tests.support.platform import cards_registered, platform_in
from tests.support.tinycard.card import CARD, TinyRecipe

RECIPE = TinyRecipe(height=16, width=16, num_inference_steps=3, guidance_scale=1.0, max_sequence_length=8)


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    with cards_registered(monkeypatch, "tests.support.tinycard.card:CARD"), platform_in(tmp_path) as opened:
        publish_weights(opened, CARD, RECIPE)
        yield opened


@pytest.fixture
def worker(runtime: Runtime) -> Iterator[FakeWorker]:
    with FakeWorker(runtime, ("tiny-test",)).serving() as serving:
        yield serving
