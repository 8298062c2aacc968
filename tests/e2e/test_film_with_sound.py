"""A prompt becomes a film with sound: workflow, worker process, store, pages; and a browser plays it."""

from __future__ import annotations

import asyncio
import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import av
import numpy as np
import pytest
import uvicorn

from mutoscope.flows.generate.text_to_film import text_to_film
from mutoscope.models.ltx2.card import CARD
from mutoscope.platform.artifacts import codecs
from mutoscope.platform.artifacts.codecs import audio, video
from mutoscope.platform.catalog import RunRecord, WorkflowRecord
from mutoscope.platform.custody.pages import Pages
from mutoscope.platform.engine import numerics
from mutoscope.platform.engine.calibration import calibrate
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import load_instance
from mutoscope.platform.engine.request import Request, Result
from mutoscope.platform.orchestration.importing import import_folder
from mutoscope.platform.orchestration.pages import RUN_PAGES
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.refs import ArtifactRef
from mutoscope.platform.web.app import Gateway
from tests.orchestration.test_workflow import artifacts_of
from tests.support.browser import PROGRAM, Page, opened
from tests.support.deadline import until
from tests.support.forked import ForkedWorker
from tests.support.platform import WEB_URL, platform_in
from tests.support.tiny_ltx2 import save_tiny_ltx2
from tests.support.workshop import ROOT, WorkerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.long]

SEED = 11
PROMPT = " ".join(["a red circle hums"] * 5)
"""Four words too long for the text encoder."""
ROWS = 2
"""Of the largest call: calibrating more takes longer than making the film."""


@dataclass(frozen=True)
class Filmed:
    """What came of it, and the same request on a quiet engine; `silent` is what came of it without sound."""

    runtime: Runtime
    record: WorkflowRecord
    run: RunRecord
    outputs: dict[str, ArtifactRef]
    silent: dict[str, ArtifactRef]
    quiet: Result

    def bytes(self, slot: str) -> bytes:
        return self.runtime.store.get(self.outputs[slot].digest)


@pytest.fixture(scope="module")
def filmed(prefect_server: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filmed]:
    home = tmp_path_factory.mktemp("film")
    folder = save_tiny_ltx2(home / "folder", recipe={"num_frames": 25})
    with platform_in(home) as runtime:
        import_folder(runtime.catalog, runtime.store, CARD, folder)
        with serving(runtime):
            silent = asyncio.run(text_to_film(prompt=PROMPT, seed=SEED, sound=False))
            returned = asyncio.run(text_to_film(prompt=PROMPT, seed=SEED))
        RUN_PAGES.drain()
        record = runtime.catalog.workflows.list()[0]
        (run_id,) = runtime.catalog.calls.asked(record.id)
        outputs = runtime.catalog.runs.outputs(run_id)
        assert returned == {name: outputs[name] for name in ("video", "audio")}
        yield Filmed(runtime, record, runtime.catalog.runs.get(run_id), outputs, silent, quiet(folder))


@contextmanager
def serving(runtime: Runtime) -> Iterator[None]:
    """A worker process for the card."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MUTOSCOPE_")}
    home = {
        "MUTOSCOPE_HOME": str(runtime.settings.home),
        "MUTOSCOPE_BATCH_ROWS": str(ROWS),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
    }
    log = runtime.settings.home / "worker.log"
    process = ForkedWorker(("--card", CARD.id), inherited | home, log)
    try:
        WorkerProcess(process, log, runtime.catalog).wait_ready()
        yield
    finally:
        process.kill()
        process.wait()


def quiet(folder: Path) -> Result:
    numerics.configure_torch(numerics.cpu_contract(threads=1))
    instance = load_instance(CARD, folder)
    ready = calibrate(instance, most=ROWS).prepare(instance)
    return Engine().run(ready, Request("r", CARD.id, {}, {"prompt": PROMPT}, SEED))


def test_the_worker_makes_what_a_quiet_engine_makes(filmed: Filmed) -> None:
    assert filmed.run.state == "succeeded"
    assert set(filmed.outputs) == {"video", "audio", "latent", "audio_latent"}
    for slot, output in filmed.quiet.outputs.items():
        assert codecs.encode(output.kind, output.value, output.meta).data == filmed.bytes(slot)
    assert filmed.run.timings is not None
    assert set(filmed.run.timings) >= {"text_encode", "generate", "decode"}
    # A step for the prompt, 3, the upsampler, 3, and the three networks that decode
    assert (filmed.run.step, filmed.run.total) == (11, 11)


def test_without_sound_there_is_the_video_alone(filmed: Filmed) -> None:
    assert set(filmed.silent) == {"video"}
    meta = filmed.silent["video"].meta
    assert meta["frames"] == 25
    assert "sample_rate" not in meta
    assert meta["frames_sha256"] != filmed.outputs["video"].meta["frames_sha256"]


def test_the_cut_prompt_is_on_the_record(filmed: Filmed) -> None:
    (line,) = filmed.run.warnings or ()
    assert (
        line
        == "prompt has 21 tokens; the text encoder reads 16: the last 5 were cut: 'hums a red circle hums'"
    )


def test_the_film_plays_its_sound(filmed: Filmed) -> None:
    meta = filmed.outputs["audio"].meta
    data = filmed.bytes("video")
    with av.open(io.BytesIO(data)) as container:
        picture, sound = container.streams.video[0], container.streams.audio[0]
        shown, heard = (float(stream.duration * stream.time_base) for stream in (picture, sound))
    assert shown == pytest.approx(25 / 24, abs=1e-3)
    assert heard == pytest.approx(meta["seconds"], abs=1e-3)
    # Sound is made by latents of 40 ms, the last of which is cut: it ends within two of them of the picture.
    assert 0 <= shown - heard < 0.08
    assert len(video.decode(data)) == 25
    samples, rate = audio.read(filmed.bytes("audio"))
    assert (rate, samples.shape) == (16_000, (2, round(meta["seconds"] * 16_000)))
    played = audio.read(data)[0][:, : samples.shape[1]]
    assert np.corrcoef(played.ravel(), samples.ravel())[0, 1] > 0.95
    assert filmed.outputs["video"].meta["samples_sha256"] == meta["samples_sha256"]


def test_prefect_gets_a_picture_of_the_sound(filmed: Filmed) -> None:
    artifacts = asyncio.run(artifacts_of(filmed.record))
    shown = artifacts[f"{CARD.id}-audio"]
    assert shown.data == f"{WEB_URL}/artifacts/{filmed.outputs['audio'].digest}/poster"


@pytest.mark.skipif(PROGRAM is None, reason="no chromium on this machine: apt-get install chromium")
def test_a_browser_plays_both_from_the_run_page(filmed: Filmed) -> None:
    url = Pages(filmed.runtime.catalog, filmed.runtime.store).url(filmed.record)
    with opened(url) as page:
        assert page.complaints == []
        assert duration(page, "audio") == pytest.approx(filmed.outputs["audio"].meta["seconds"], abs=0.01)
        assert duration(page, "video") == pytest.approx(25 / 24, abs=0.01)
        for medium in ("audio", "video"):
            assert plays_sound(page, medium)
        drawn = page.evaluate("document.querySelector('.sound img').naturalWidth")
        assert drawn == 960


@pytest.mark.skipif(PROGRAM is None, reason="no chromium on this machine: apt-get install chromium")
def test_a_browser_plays_it_from_the_gateway(filmed: Filmed) -> None:
    with gateway(filmed.runtime) as root:
        for slot in ("audio", "video"):
            with opened(f"{root}/artifacts/{filmed.outputs[slot].digest}/page") as page:
                assert duration(page, slot) > 0.9
                assert plays_sound(page, slot)
                assert page.complaints == []


def duration(page: Page, medium: str) -> float:
    """Seconds, once the browser knows."""
    script = f"document.querySelector('{medium}').duration || 0"
    until(lambda: page.evaluate(script), f"the browser to open the {medium}")
    return float(page.evaluate(script))


def plays_sound(page: Page, medium: str) -> bool:
    """Whether it plays on and the browser decodes sound from it."""
    element = f"document.querySelector('{medium}')"
    # Sound needs a person's consent, also when it is muted.
    script = f"{element}.muted = true; {element}.loop = true; {element}.play(); 0"
    page.call("Runtime.evaluate", expression=script, userGesture=True)
    until(
        lambda: page.evaluate(f"{element}.error !== null || {element}.currentTime > 0.2"),
        f"the {medium} to play",
    )
    state = page.evaluate(f"JSON.stringify([{element}.error, {element}.webkitAudioDecodedByteCount])")
    error, decoded = json.loads(state)
    return error is None and decoded > 0


@contextmanager
def gateway(runtime: Runtime) -> Iterator[str]:
    """The gateway on a port of its own."""
    config = uvicorn.Config(Gateway(runtime.catalog, runtime.store).app(), port=0, log_level="error")
    server = uvicorn.Server(config)
    thread = Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started, "the gateway to start")
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()
