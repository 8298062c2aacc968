"""A nested workflow and a sweep on the real stack: what people are shown, with the shipped weights."""

from __future__ import annotations

import av
import numpy as np
import pytest
from PIL import Image

from tests.e2e.conftest import PROMPT, SEED, FirstVideo
from tests.e2e.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def test_a_video_is_continued_without_a_jump(stack: Stack, first_video: FirstVideo) -> None:
    folder, before = stack.home.parent / "extended", stack.run_count()
    result = stack.run(
        *("run", "t2i_i2v_extend", f"prompt={PROMPT}", f"seed={SEED}", "then=a red circle, drifting up"),
        *("--json", "--output", str(folder)),
    )
    assert result.code == 0, f"{result.err}{stack.logs()}"
    made = result.json["outputs"]
    # The picture and the first video are those there are: only what comes after them is computed.
    assert made["image"]["digest"] == first_video.digests["image"]
    assert made["parts.0"]["digest"] == first_video.digests["video"]
    assert stack.run_count() - before == 3
    with av.open(str(folder / "video.mp4")) as film:
        frames = np.stack([frame.to_ndarray(format="rgb24") for frame in film.decode(video=0)]).astype(float)
    with av.open(str(folder / "parts.0.mp4")) as film:
        length = sum(1 for _ in film.decode(video=0))
    assert len(frames) == 2 * length - 1
    moved = np.abs(np.diff(frames, axis=0)).mean(axis=(1, 2, 3))
    # Where the parts meet, the picture changes no more than it does elsewhere.
    assert moved[length - 1] <= 2 * moved.max(initial=0, where=np.arange(len(moved)) != length - 1)
    assert moved[length:].mean() > 0.5


def test_a_sweep_makes_one_sheet_whose_lineage_names_its_weights(stack: Stack) -> None:
    folder = stack.home.parent / "swept"
    result = stack.run(
        *("run", "prompt_sweep", "prompts=a red circle | a blue square", "versions=flux-t2i/transformer@1"),
        *("count=2", f"seed={SEED}", "--json", "--output", str(folder)),
    )
    assert result.code == 0, f"{result.err}{stack.logs()}"
    assert {"sheet", "cells", "images.0", "images.3"} <= set(result.json["outputs"])
    with Image.open(folder / "sheet.png") as sheet:
        assert sheet.width > 2 * 192
        assert sheet.height > 2 * 192
    tree = stack.run("lineage", f"image:{result.json['outputs']['sheet']['digest'][:10]}")
    assert "flux-t2i/transformer@1" in tree.out
    assert tree.out.count("flux-t2i run") == 4
