"""The shipped image-to-video folder: complete, small, and able to move what it is given."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from mutoscope.models.starter.folders import starter_folder
from mutoscope.models.starter.video_evaluate import FolderSampler, held_out_trials, measure

FOLDER = starter_folder("wan-i2v")


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Frames repeat to the bit only for a fixed number of threads, and the figures with them."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_the_folder_is_shipped_and_small() -> None:
    assert FOLDER is not None
    parts = {p.name for p in FOLDER.iterdir()}
    assert parts == {
        *("model_index.json", "recipe.json", "scheduler", "text_encoder", "tokenizer", "transformer", "vae"),
    }
    assert sum(p.stat().st_size for p in FOLDER.rglob("*") if p.is_file()) <= 10 * 2**20


def test_the_transformer_has_the_image_to_video_layout() -> None:
    assert FOLDER is not None
    config: dict[str, Any] = json.loads((FOLDER / "transformer" / "config.json").read_text())
    # 16 noise latents, 4 mask channels (one per frame of a latent frame), 16 image latents; no image encoder.
    assert (config["in_channels"], config["out_channels"], config["image_dim"]) == (36, 16, None)


def test_held_out_scenes_move_as_said(one_thread: None) -> None:
    assert FOLDER is not None
    figures, _, _ = measure(FolderSampler(FOLDER), held_out_trials(7))
    # One clip a motion: a smoke test of the folder; the figures of two hundred are in the model card.
    assert figures["motion"] >= 5 / 7
    assert figures["first_frame_psnr"] >= 30
    assert figures["last_colour"] >= 0.9
