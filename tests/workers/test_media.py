"""Branches, frames, joined clips and sheets by a real worker process: what goes through store and queue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mutoscope.models.registry import get_card
from mutoscope.models.starter.folders import starter_folder
from mutoscope.platform.artifacts import codecs
from mutoscope.platform.catalog.tree import render_tree
from mutoscope.platform.errors import RunFailed
from mutoscope.platform.orchestration.importing import import_folder
from mutoscope.platform.orchestration.runtime import Runtime, use_runtime
from mutoscope.platform.orchestration.submit import Outcome, submit_run
from mutoscope.platform.refs import ArtifactRef
from tests.support.workshop import Workshop

CARDS = ("flux-t2i", "video-frame", "video-join", "contact-sheet")


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    workshop = Workshop(tmp_path_factory.mktemp("media") / "home", concurrency=4)
    folder = starter_folder("flux-t2i")
    assert isinstance(folder, Path)
    import_folder(workshop.catalog, workshop.store, get_card("flux-t2i"), folder)
    arguments = [word for card_id in CARDS for word in ("--card", card_id)]
    with workshop.worker(*arguments) as worker:
        worker.wait_ready()
        with use_runtime(Runtime(workshop.settings, workshop.catalog, workshop.store)) as opened:
            yield opened
    workshop.close()


async def drawn(prompt: str, **given: Any) -> Outcome:
    return await submit_run("flux-t2i", prompt=prompt, seed=7, num_inference_steps=4, **given)


async def test_branches_on_a_sheet(runtime: Runtime) -> None:
    trunk = await drawn("a red circle", keep_step=2)
    kept = trunk.outputs["kept"]
    assert (kept.kind, kept.meta["step"], kept.meta["of"]) == ("latent", 2, 4)
    same, other = [await drawn(prompt, start=kept) for prompt in ("a red circle", "a blue circle")]
    assert same.run.id != trunk.run.id
    assert same.outputs["image"] == trunk.outputs["image"]
    assert other.outputs["image"] != trunk.outputs["image"]

    images = [outcome.outputs["image"] for outcome in (trunk, same, other)]
    sheet = await submit_run("contact-sheet", images=images, columns=3, column_labels=["a", "b", "c"])
    assert runtime.catalog.runs.inputs(sheet.run.id) == {f"images.{at}": ref for at, ref in enumerate(images)}
    assert sheet.outputs["image"].meta["width"] > 3 * 192
    again = await submit_run("contact-sheet", images=images, columns=3, column_labels=["a", "b", "c"])
    assert again.disposition == "hit"
    swapped = await submit_run("contact-sheet", images=images[::-1], columns=3, column_labels=["a", "b", "c"])
    assert swapped.disposition == "new"  # their order is part of the key
    shown = render_tree(runtime.catalog.lineage.up(sheet.outputs["image"].digest))
    assert "flux-t2i/transformer@1" in shown
    assert str(kept) in shown


async def test_clips_are_joined_and_cut(runtime: Runtime) -> None:
    def clip(start: int, width: int = 64) -> ArtifactRef:
        values = np.arange(start, start + 40, 10, dtype=np.uint8)[:, None, None, None]
        encoded = codecs.encode("video", np.broadcast_to(values, (4, 64, width, 3)).copy(), {"fps": 8})
        ref = runtime.store.put(encoded.data, kind="video", media_type=encoded.media_type, meta=encoded.meta)
        runtime.catalog.artifacts.record(ref)
        return ref

    joined = await submit_run("video-join", videos=[clip(0), clip(30)], fps=8, shared_frames=1)
    video = joined.outputs["video"]
    assert (video.meta["frames"], video.meta["fps"]) == (7, 8)
    frame = (await submit_run("video-frame", video=video)).outputs["image"]
    pixels = codecs.decode("image", runtime.store.get(frame.digest), frame.media_type)
    assert abs(int(pixels.mean()) - 60) <= 2
    with pytest.raises(RunFailed, match="videos='64x64 and 96x64' is not valid: join videos of one size"):
        await submit_run("video-join", videos=[clip(0), clip(30, width=96)], fps=8)
