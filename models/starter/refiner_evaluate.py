"""How good the refiner is: held-out terse prompts, and what the image model makes of them, as they are and
completed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from diffusers import FluxPipeline
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from mutoscope.models.starter.checker import check_image
from mutoscope.models.starter.evaluate import EVALUATION_SEED, Scores, contact_sheet, draw
from mutoscope.models.starter.folders import starter_folder
from mutoscope.models.starter.grammar import CaptionError, parse
from mutoscope.models.starter.refiner_lm import complete
from mutoscope.models.starter.terse import Pair, sample_pair

PICTURES: Final = 64
"""Pictures drawn from terse prompts, and as many from what the refiner made of them."""


def held_out_pairs(count: int, seed: int = EVALUATION_SEED) -> dict[str, list[Pair]]:
    """Distinct prompts about scenes nobody was trained on, ``count`` a kind: ``terse`` ones, ``vague`` ones
    that leave the relation open, and ``spelled`` ones that are captions already.
    """
    rng = np.random.default_rng(seed)
    kinds: dict[str, dict[str, Pair]] = {"terse": {}, "vague": {}, "spelled": {}}
    while any(len(found) < count for found in kinds.values()):
        pair = sample_pair(rng, "held_out")
        kind = "vague" if pair.vague else "spelled" if _is_caption(pair.terse) else "terse"
        if len(kinds[kind]) < count:
            kinds[kind].setdefault(pair.terse, pair)
    return {kind: list(found.values()) for kind, found in kinds.items()}


def _is_caption(text: str) -> bool:
    try:
        parse(text)
    except CaptionError:
        return False
    return True


def measure_folder(folder: Path, count: int = 200, sheets: Path | None = None) -> dict[str, Any]:
    """Figures of a folder over ``count`` held-out prompts of each kind.

    ``exact``: the very caption that was meant; ``same_scene``: a caption of the scene, in whatever words.
    ``drawn`` repeats the latter with tokens drawn at temperature 1. ``pictures`` are scores of the image
    model that ships, on terse prompts as they are and as completed; with ``sheets`` they are written there.
    """
    torch.set_num_threads(1)
    model = Qwen2ForCausalLM.from_pretrained(folder).eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    pairs = held_out_pairs(count)
    figures: dict[str, Any] = {"prompts": count}

    def greedy(pair: Pair) -> str:
        return complete(model, tokenizer, pair.terse)

    def drawn(pair: Pair) -> str:
        return complete(model, tokenizer, pair.terse, do_sample=True, temperature=1.0, top_k=0, top_p=1.0)

    for kind, asked in pairs.items():
        torch.manual_seed(EVALUATION_SEED)
        figures[kind] = _figures(asked, greedy) | {"drawn": _figures(asked, drawn)["same_scene"]}
    figures["pictures"] = _picture_figures(pairs["terse"][:PICTURES], greedy, sheets)
    return figures


def _figures(pairs: Sequence[Pair], write: Callable[[Pair], str]) -> dict[str, float]:
    texts = [write(pair) for pair in pairs]
    exact = [pair.full == text for pair, text in zip(pairs, texts, strict=True)]
    same = [pair.completed_by(text) for pair, text in zip(pairs, texts, strict=True)]
    return {"exact": round(float(np.mean(exact)), 4), "same_scene": round(float(np.mean(same)), 4)}


def _picture_figures(
    pairs: Sequence[Pair], write: Callable[[Pair], str], sheets: Path | None
) -> dict[str, dict[str, float]]:
    """The checker's scores of pictures from both texts; one noise for each pair."""
    folder = starter_folder("flux-t2i")
    assert folder is not None
    pipeline = FluxPipeline.from_pretrained(folder)
    pipeline.set_progress_bar_config(disable=True)
    recipe = json.loads((folder / "recipe.json").read_text())
    figures = {}
    for name, texts in (("terse", [p.terse for p in pairs]), ("refined", [write(p) for p in pairs])):
        pictures = draw(pipeline, recipe, texts, EVALUATION_SEED)
        reports = [check_image(shown, parse(p.full)) for shown, p in zip(pictures, pairs, strict=True)]
        scores = Scores(texts, pictures, reports)
        figures[name] = scores.figures()
        if sheets is not None:
            sheets.mkdir(parents=True, exist_ok=True)
            first = Scores(scores.captions[:36], scores.pictures[:36], scores.reports[:36])
            contact_sheet(first).save(sheets / f"{name}.png", optimize=True)
    return figures
