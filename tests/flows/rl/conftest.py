"""Rollouts by the real engine on tiny weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mutoscope.platform.orchestration.runtime import Runtime
from tests.support.real_engine import RealEngine
from tests.support.rollouts import SCENE, rollout_platform


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[RealEngine]:
    with rollout_platform(tmp_path, "flux-t2i", SCENE) as serving:
        yield serving


@pytest.fixture
def runtime(engine: RealEngine) -> Runtime:
    return engine.runtime
