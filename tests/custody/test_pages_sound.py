"""Sounds on run pages: a player, and the waveform and spectrogram inside of the page."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import numpy as np
import pytest

from mutoscope.platform.artifacts import ArtifactStore, codecs, layout, sound
from mutoscope.platform.artifacts.codecs.audio import Samples
from mutoscope.platform.catalog import Catalog
from mutoscope.platform.custody import pages_sound
from mutoscope.platform.custody.pages import Pages
from mutoscope.platform.custody.pages_path import page_of
from mutoscope.platform.refs import ArtifactRef

RATE = 16_000
PROMPT = 'a "hum" & <b>a buzz</b>'
_PICTURE = re.compile(r'<img src="data:image/png;base64,([A-Za-z0-9+/=]+)" alt="([^"]*)"')


def tone(hertz: float) -> Samples:
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(8000) / RATE)).astype(np.float32)[None]


def a_sounding_run(catalog: Catalog, store: ArtifactStore, *hertz: float) -> tuple[str, list[ArtifactRef]]:
    """A workflow run that has made these tones, and its page."""
    refs = []
    for each in hertz:
        encoded = codecs.encode("audio", tone(each), {"sample_rate": RATE})
        refs.append(store.put(encoded.data, kind="audio", media_type=encoded.media_type, meta=encoded.meta))
    run_id = catalog.workflows.start("test.sung", {"prompt": PROMPT, "seed": 7})
    for ref in refs:
        catalog.runs.record_completed(
            "engine", card="ltx2-av", generated={"audio": ref}, workflow_run_id=run_id
        )
    catalog.workflows.finish(run_id, "succeeded", outputs={f"audio {at}": ref for at, ref in enumerate(refs)})
    Pages(catalog, store).write([run_id])
    return run_id, refs


def page(catalog: Catalog, store: ArtifactStore, run_id: str) -> str:
    data = store.published(page_of(catalog.workflows.get(run_id)))
    assert data is not None
    return data.decode()


def test_a_sound_has_its_picture_and_a_player(catalog: Catalog, store: ArtifactStore) -> None:
    run_id, (ref,) = a_sounding_run(catalog, store, 440)
    html = page(catalog, store, run_id)
    (picture, about), *_ = _PICTURE.findall(html)
    drawn = codecs.decode("image", base64.b64decode(picture), "image/png")
    assert np.array_equal(drawn, sound.draw(tone(440), RATE))
    assert about.startswith("waveform and spectrogram of audio 0: a &#34;hum&#34; &amp; &lt;b&gt;")
    assert f'<source src="../../../../{layout.object_name(ref.digest)}" type="audio/wav">' in html
    assert "mono, 16 kHz, 0.5 s" in html
    # The pages' own policy lets it be shown.
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy is not None
    assert "img-src &#39;self&#39; file: data:;" in policy[1]


def test_pages_of_sounds_are_settled_too(catalog: Catalog, store: ArtifactStore) -> None:
    run_id, _ = a_sounding_run(catalog, store, 440)
    before = page(catalog, store, run_id)
    assert Pages(catalog, store).rebuild().written == 0
    assert page(catalog, store, run_id) == before


def test_a_sound_whose_bytes_are_gone_or_broken_has_no_picture(
    catalog: Catalog, store: ArtifactStore
) -> None:
    run_id, (gone, broken, whole) = a_sounding_run(catalog, store, 220, 440, 880)
    for ref, damage in ((gone, Path.unlink), (broken, lambda path: path.write_bytes(b"other"))):
        path = store.local_path(ref.digest)
        assert path is not None
        path.chmod(0o644)
        damage(path)
    Pages(catalog, store).write([run_id])
    drawn = {match[0] for match in _PICTURE.findall(page(catalog, store, run_id))}
    picture = codecs.encode("image", sound.draw(tone(880), RATE))
    assert drawn == {base64.b64encode(picture.data).decode()}
    assert page(catalog, store, run_id).count("<audio ") == 3
    assert whole.digest in page(catalog, store, run_id)


def test_a_page_draws_so_many_sounds_and_none_beyond_a_size(
    catalog: Catalog, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, _ = a_sounding_run(catalog, store, *range(200, 1400, 100))
    html = page(catalog, store, run_id)
    assert html.count("<audio ") == 12
    assert len({match[0] for match in _PICTURE.findall(html)}) == 8
    monkeypatch.setattr(pages_sound, "_MOST_BYTES", 100)
    Pages(catalog, store).write([run_id])
    assert not _PICTURE.findall(page(catalog, store, run_id))
