"""Cosmos3 through a real worker: words and video of one run, a picture of another, tiles of a third."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mutoscope.models.cosmos3.card import CARD
from mutoscope.platform.artifacts import codecs
from mutoscope.platform.catalog import RunRecord
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import load_instance
from mutoscope.platform.engine.request import Request, Result
from mutoscope.platform.orchestration.importing import import_folder
from mutoscope.platform.orchestration.plan import plan_run
from mutoscope.platform.orchestration.runtime import Runtime
from tests.support.tiny_cosmos3 import save
from tests.support.workshop import Workshop

PROMPT = "a red circle drifting left"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("cosmos3") / "folder")


@pytest.fixture
def home(workshop: Workshop, folder: Path) -> Workshop:
    import_folder(workshop.catalog, workshop.store, CARD, folder)
    return workshop


def queue(home: Workshop, **given: Any) -> str:
    runtime = Runtime(home.settings, home.catalog, home.store)
    spec = plan_run(runtime, CARD.id, {"prompt": PROMPT, **given}, seed=7)
    return home.catalog.runs.enqueue(spec, present=home.store.contains).run.id


def here(folder: Path, **given: Any) -> Result:
    """The same on a quiet engine. Runs planned before there is a worker have unshared steps too."""
    request = Request("r", CARD.id, {}, {"prompt": PROMPT, **given}, 7)
    return Engine().run(load_instance(CARD, folder), request)


def assert_equal(home: Workshop, run: RunRecord, expected: Result) -> None:
    stored = home.catalog.runs.outputs(run.id)
    assert set(stored) == set(expected.outputs)
    for slot, output in expected.outputs.items():
        encoded = codecs.encode(output.kind, output.value, output.meta)
        assert home.store.get(stored[slot].digest) == encoded.data


@pytest.mark.long
def test_a_worker_reasons_and_draws(home: Workshop, folder: Path) -> None:
    requests: list[dict[str, Any]] = [
        {"reasoning_tokens": 5, "temperature": 1.0, "max_sequence_length": 3},
        {"num_frames": 1, "reasoning_tokens": 0},
        {"height": 48, "vae_tile": 32, "reasoning_tokens": 0},
    ]
    queued = [queue(home, **given) for given in requests]
    with home.worker("--card", CARD.id) as worker:
        runs = [home.wait(run_id) for run_id in queued]
        assert [run.state for run in runs] == ["succeeded"] * 3, worker.log
        for run, given in zip(runs, requests, strict=True):
            assert_equal(home, run, here(folder, **given))
        video, picture, tiled = runs
        assert set(home.catalog.runs.outputs(video.id)) == {"video", "latent", "text"}
        assert video.warnings is not None
        assert video.warnings[0].startswith("prompt has 5 tokens; the model reads 3")
        assert set(home.catalog.runs.outputs(picture.id)) == {"image", "latent", "text"}
        # The prompt is handed on and read, no image, 2 steps, and 2 x 2 tiles of 2 latent frames each.
        assert (tiled.step, tiled.total) == (13, 13)
        # Live again, a calibrated worker's contract is another; it serves the run all the same.
        worker.wait_ready()
        again = home.wait(queue(home, **requests[0]))
        assert again.state == "succeeded", worker.log
    assert home.catalog.incidents.list() == []
