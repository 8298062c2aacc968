"""Tiny folders of composed cards: a tiny FLUX with tiny language models in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mutoscope.models.unified.assembly import assemble
from tests.support.tiny_flux import save_tiny_flux
from tests.support.tiny_lm import save_tiny_lm

FIRST_SEED = 40
"""Of the first refiner's weights; the others' follow."""


def save_tiny_unified(folder: Path, parts: tuple[str, ...] = ("refiner",), *, seed: int = 0) -> Path:
    """Write a composed folder with those refiners, all different; the parts lie beside it."""
    sources = folder.with_name(f"{folder.name}.parts")
    generator = save_tiny_flux(sources / "generator", seed=seed)
    refiners = {
        part: save_tiny_lm(sources / part, seed=seed + FIRST_SEED + at) for at, part in enumerate(parts)
    }
    return assemble(folder, generator, refiners)


def make(folder: Path, card_id: str, seed: int = 0) -> Path:
    """A complete folder of a composed card; `multi-expert` with two refiners."""
    parts = {"unirl-qwenflux": ("refiner",), "multi-expert": ("refiner_1", "refiner_2")}[card_id]
    return save_tiny_unified(folder, parts, seed=seed)


def variants(card_id: str) -> list[dict[str, Any]]:
    """Parameter sets worth mixing: a drawn answer, none at all, other steps."""
    return [{}, {"do_sample": True}, {"refine": False}, {"num_inference_steps": 3, "max_new_tokens": 5}]
