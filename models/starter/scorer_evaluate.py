"""How good the scene scorer is: true renderings, other captions, and where it and the independent judge part.

Generated pictures are drawn with few steps as well as many, so that there is something to disagree about.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from diffusers import FluxPipeline
from numpy.typing import NDArray
from scipy.stats import spearmanr

from mutoscope.models.reward.scene.card import CARD
from mutoscope.models.starter.checker import check_image
from mutoscope.models.starter.evaluate import EVALUATION_SEED, draw, held_out_captions
from mutoscope.models.starter.folders import starter_folder
from mutoscope.models.starter.grammar import MOTIONS, Scene, caption_of, parse, sample_scene
from mutoscope.models.starter.motion import sample_clip
from mutoscope.models.starter.render import place, render
from mutoscope.platform.engine.engine import Engine
from mutoscope.platform.engine.instance import Instance, load_instance
from mutoscope.platform.engine.request import Request

STEPS: Final = (3, 5, 20)
"""Denoising steps of the generated pictures: the starter model's 20, and far too few."""


def measure_folder(folder: Path, captions: int, sheets: Path | None = None) -> dict[str, Any]:
    """Figures of a scorer's folder. `sheets` is taken for symmetry with the other models; there are none."""
    torch.set_num_threads(1)
    scorer = load_instance(CARD, folder)
    rng = np.random.default_rng(EVALUATION_SEED)
    return {
        "renderings": _renderings(scorer, rng, captions),
        "clips": _clips(scorer, rng, max(captions // 4, 1)),
        "generated": _generated(scorer, captions),
    }


def score(scorer: Instance, samples: Iterable[tuple[str, NDArray[np.uint8]]]) -> NDArray[np.float64]:
    """The score of each (caption, picture or clip), all in one engine."""
    engine = Engine()
    tickets = [
        engine.submit(scorer, Request(f"{n}", CARD.id, _inputs(sample), {"prompt": caption}, 0))
        for n, (caption, sample) in enumerate(samples)
    ]
    while engine.step():
        pass
    return np.array([ticket.result().outputs["reward"].value["score"] for ticket in tickets])


def _inputs(sample: NDArray[np.uint8]) -> dict[str, Any]:
    return {"image" if sample.ndim == 3 else "video": sample}


def _renderings(scorer: Instance, rng: np.random.Generator, count: int) -> dict[str, float]:
    """True pictures under their own caption and under another scene's."""
    scenes = [sample_scene(rng, "held_out", motion_share=0.0) for _ in range(count)]
    pictures = [render(scene, place(scene, rng)) for scene in scenes]
    others = scenes[1:] + scenes[:1]
    own = score(scorer, zip(map(caption_of, scenes), pictures, strict=True))
    other = score(scorer, zip(map(caption_of, others), pictures, strict=True))
    judged = [check_image(picture, scene).mean for picture, scene in zip(pictures, others, strict=True)]
    return _rounded(
        own_mean=own.mean(), own_least=own.min(), other_mean=other.mean(), judge_other_mean=np.mean(judged)
    )


def _clips(scorer: Instance, rng: np.random.Generator, count: int) -> dict[str, float]:
    """True clips under their own caption and under one with another motion."""
    scenes = [sample_scene(rng, "held_out", motion_share=1.0) for _ in range(count)]
    clips = [sample_clip(scene, rng) for scene in scenes]
    wrong = [replace(scene, motion=_another(rng, scene)) for scene in scenes]
    own = score(scorer, zip(map(caption_of, scenes), clips, strict=True))
    other = score(scorer, zip(map(caption_of, wrong), clips, strict=True))
    return _rounded(
        own_mean=own.mean(),
        own_least=own.min(),
        other_motion_mean=other.mean(),
        other_motion_most=other.max(),
    )


def _another(rng: np.random.Generator, scene: Scene) -> str:
    return str(rng.choice([motion for motion in MOTIONS if motion != scene.motion]))


def _generated(scorer: Instance, count: int) -> dict[str, float]:
    """Agreement with the judge over pictures of the starter image model."""
    folder = starter_folder("flux-t2i")
    assert folder is not None
    pipeline = FluxPipeline.from_pretrained(folder)
    pipeline.set_progress_bar_config(disable=True)
    recipe = json.loads((folder / "recipe.json").read_text())
    captions = [caption for objects in (1, 2) for caption in held_out_captions(objects, -(-count // 2))]
    scored: list[float] = []
    judged: list[float] = []
    for steps in STEPS:
        pictures = draw(pipeline, {**recipe, "num_inference_steps": steps}, captions, EVALUATION_SEED)
        scored += score(scorer, zip(captions, pictures, strict=True)).tolist()
        judged += _judge(captions, pictures)
    return agreement(scored, judged)


def _judge(captions: Sequence[str], pictures: NDArray[np.uint8]) -> list[float]:
    return [
        check_image(picture, replace(parse(caption), motion=None)).mean
        for caption, picture in zip(captions, pictures, strict=True)
    ]


def agreement(scored: Sequence[float], judged: Sequence[float]) -> dict[str, float]:
    """Correlation of two judgements, plain and of ranks, and how well the first tells what the second calls
    wholly right: the probability that such a picture scores above another one.
    """
    ours, theirs = np.array(scored), np.array(judged)
    right = theirs >= 1.0
    above = (ours[right][:, None] > ours[~right][None, :]).mean() if right.any() and not right.all() else 1.0
    return _rounded(
        pictures=len(ours),
        judged_right=right.mean(),
        pearson=np.corrcoef(ours, theirs)[0, 1],
        spearman=spearmanr(ours, theirs).statistic,
        right_above_wrong=above,
        mean_difference=np.abs(ours - theirs).mean(),
    )


def _rounded(**figures: Any) -> dict[str, float]:
    return {name: round(float(value), 4) for name, value in figures.items()}
