"""Tiny Wan folders for the template suite, in the plain layouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.models.wan.folders import PLAIN, TEXT, write_folder


def make(folder: Path, card_id: str, seed: int = 0) -> Path:
    """A folder of the card."""
    # Components take seeds that follow each other; ten apart, no two of theirs are equal.
    return write_folder(folder, TEXT if card_id == "wan-t2v" else PLAIN, seed=10 * seed)


def variants(card_id: str) -> list[dict[str, Any]]:
    """Guided or not, and one whose steps lie elsewhere on the schedule."""
    return [{}, {"guidance_scale": 1.0}, {"num_inference_steps": 2}]
