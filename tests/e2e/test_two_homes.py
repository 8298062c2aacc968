"""Two clean homes make the same bytes. The second has no server and no flow: only catalog, store and a
worker.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mutoscope.models.registry import cards
from mutoscope.models.starter.folders import starter_folder
from mutoscope.platform.artifacts import ArtifactStore
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.orchestration.importing import import_folder
from mutoscope.platform.orchestration.runtime import Runtime, use_runtime
from mutoscope.platform.orchestration.submit import submit_run
from mutoscope.platform.refs import ArtifactRef
from mutoscope.platform.settings import Settings
from tests.e2e.conftest import PROMPT, SEED, FirstVideo
from tests.e2e.stack import PATIENCE_S, Stack
from tests.support.deadline import until

pytestmark = [pytest.mark.e2e, pytest.mark.long]


@pytest.fixture
def second_home(tmp_path: Path) -> Iterator[Runtime]:
    settings = Settings(home=tmp_path / "second")
    Catalog.migrate(settings.database_url)
    runtime = Runtime(settings, Catalog.open(settings.database_url), ArtifactStore.open(settings.store_url))
    for card in cards().values():
        if (folder := starter_folder(card.id)) is not None:
            import_folder(runtime.catalog, runtime.store, card, folder)
    with use_runtime(runtime):
        yield runtime
    runtime.catalog.close()


@contextmanager
def serving(runtime: Runtime) -> Iterator[None]:
    environment = Stack(runtime.settings.home).environment
    log = runtime.settings.home / "worker.log"
    with log.open("wb") as sink:
        worker = subprocess.Popen(
            [sys.executable, "-m", "mutoscope.workers"], env=environment, stderr=sink, stdout=sink
        )
    try:
        until(
            lambda: (
                worker.poll() is not None
                or any(w.state != "starting" for w in runtime.catalog.workers.alive())
            ),
            "the worker is ready",
            seconds=PATIENCE_S,
        )
        assert worker.poll() is None, log.read_text()
        yield
    finally:
        worker.terminate()
        worker.wait(60)


async def make() -> dict[str, ArtifactRef]:
    """What text_to_video does, without Prefect."""
    image = (await submit_run("flux-t2i", prompt=PROMPT, seed=SEED)).outputs["image"]
    video = (await submit_run("wan-i2v", prompt=PROMPT, seed=SEED, image=image)).outputs["video"]
    return {"image": image, "video": video}


def test_image_frames_and_film_are_equal(first_video: FirstVideo, second_home: Runtime) -> None:
    with serving(second_home):
        made = asyncio.run(make())
    assert {name: ref.digest for name, ref in made.items()} == first_video.digests
    frames = first_video.report["outputs"]["video"]["meta"]["frames_sha256"]
    assert made["video"].meta["frames_sha256"] == frames
