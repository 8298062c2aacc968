"""A sound in the gateway: heard through its player, seen as waveform and spectrogram."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

from mutoscope.platform.artifacts import codecs, sound
from mutoscope.platform.artifacts.codecs.audio import Samples
from mutoscope.platform.clip import Clip
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.refs import ArtifactRef
from mutoscope.platform.web.app import Gateway
from tests.support.platform import platform_in

RATE = 16_000


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    with platform_in(tmp_path) as opened:
        yield opened


@pytest.fixture
def client(runtime: Runtime) -> Iterator[TestClient]:
    app = Gateway(runtime.catalog, runtime.store).app()
    with TestClient(app, follow_redirects=False) as opened:
        yield opened


def tone() -> Samples:
    swing = np.sin(2 * np.pi * 440 * np.arange(8000) / RATE)
    return np.stack([0.8 * swing, 0.2 * swing]).astype(np.float32)


@pytest.fixture
def made(runtime: Runtime) -> dict[str, ArtifactRef]:
    """A film and its sound, of one run."""
    outputs = {}
    for kind, value, meta in (
        ("video", Clip(np.zeros((12, 16, 16, 3), np.uint8), tone(), RATE), {"fps": 24}),
        ("audio", tone(), {"sample_rate": RATE}),
    ):
        encoded = codecs.encode(kind, value, meta)
        outputs[kind] = runtime.store.put(
            encoded.data, kind=kind, media_type=encoded.media_type, meta=encoded.meta
        )
    runtime.catalog.runs.record_completed(
        "engine", card="ltx2-av", parameters={"prompt": "it hums"}, generated=outputs
    )
    return outputs


def test_its_bytes_play_where_they_lie(
    runtime: Runtime, client: TestClient, made: dict[str, ArtifactRef]
) -> None:
    ref = made["audio"]
    answer = client.get(f"/artifacts/{ref.digest}")
    assert answer.content == runtime.store.get(ref.digest)
    assert answer.headers["content-type"] == "audio/wav"
    assert answer.headers["content-disposition"] == f'inline; filename="audio-{ref.digest[:12]}.wav"'
    part = client.get(f"/artifacts/{ref.digest}", headers={"range": "bytes=58-65"})
    assert (part.status_code, part.content) == (206, np.ascontiguousarray(tone().T)[0].tobytes())


def test_its_poster_is_what_it_looks_like(client: TestClient, made: dict[str, ArtifactRef]) -> None:
    url = f"/artifacts/{made['audio'].digest}/poster"
    answer = client.get(url)
    assert answer.headers["content-type"] == "image/png"
    shown = codecs.decode("image", answer.content, "image/png")
    assert np.array_equal(shown, sound.draw(tone(), RATE))
    assert client.get(url, headers={"if-none-match": answer.headers["etag"]}).status_code == 304


def test_its_page_has_picture_player_and_facts(client: TestClient, made: dict[str, ArtifactRef]) -> None:
    ref = made["audio"]
    html = client.get(f"/artifacts/{ref.digest}/page").text
    assert f'<img src="/artifacts/{ref.digest}/poster" alt="waveform and spectrogram of it hums">' in html
    assert f'<audio src="/artifacts/{ref.digest}" controls' in html
    for name, value in (("sample_rate", RATE), ("channels", 2), ("seconds", 0.5)):
        assert f"<dt>{name}</dt><dd>{value}</dd>" in html


def test_lists_show_it_beside_the_film(client: TestClient, made: dict[str, ArtifactRef]) -> None:
    picture = f'<img src="/artifacts/{made["audio"].digest}/poster"'
    run = next(iter(client.get(f"/artifacts/{made['audio'].digest}/page").text.split('href="/runs/')[1:]))
    for page in ("/", f"/artifacts/{made['video'].digest}/page", f"/runs/{run.split(chr(34))[0]}"):
        html = client.get(page).text
        assert picture in html
        assert "♪ 0.5 s" in html
    assert "▶ 12 frames ♪" in client.get("/").text


def test_a_sound_that_cannot_be_read_is_one_line(runtime: Runtime, client: TestClient) -> None:
    broken = runtime.store.put(b"no sound", kind="audio", media_type="audio/wav")
    runtime.catalog.artifacts.record(broken)
    answer = client.get(f"/artifacts/{broken.digest}/poster")
    assert answer.status_code == 404
    assert "use a readable sound file" in answer.json()["error"]
    assert client.get(f"/artifacts/{broken.digest}/page").status_code == 200
