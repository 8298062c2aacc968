"""How good the image model is: held-out captions through FluxPipeline, judged by the independent checker."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from diffusers import FluxPipeline
from PIL import Image, ImageDraw

from mutoscope.models.starter.checker import ImageReport, check_image
from mutoscope.models.starter.grammar import Scene, paraphrase, parse, sample_scene

EVALUATION_SEED = 2024
BATCH = 32


@dataclass(frozen=True)
class Scores:
    """Captions, the pictures drawn for them (uint8 (N, H, W, 3)), and what the checker says."""

    captions: list[str]
    pictures: np.ndarray
    reports: list[ImageReport]

    def figures(self) -> dict[str, float]:
        """Means over captions of each check; ``strict`` is the share of captions with every check right."""
        reports = self.reports
        relations = [r.relation for r in reports if r.relation is not None]
        figures = {
            "mean": np.mean([r.mean for r in reports]),
            "strict": np.mean([r.strict for r in reports]),
            "colour": np.mean([np.mean(r.colour) for r in reports]),
            "shape": np.mean([np.mean(r.shape) for r in reports]),
            "background": np.mean([r.background for r in reports]),
            "count": np.mean([r.count for r in reports]),
        }
        if relations:
            figures["relation"] = np.mean(relations)
        return {name: round(float(value), 4) for name, value in figures.items()}


def held_out_captions(objects: Literal[1, 2], count: int, seed: int = EVALUATION_SEED) -> list[str]:
    """Distinct captions of scenes no stage was trained on, half of them with a motion clause."""
    rng = np.random.default_rng((seed, objects))
    captions: dict[str, None] = {}
    while len(captions) < count:
        captions[paraphrase(sample_scene(rng, "held_out", objects, motion_share=0.5), rng)] = None
    return list(captions)


def draw(pipeline: FluxPipeline, recipe: Mapping[str, Any], captions: Sequence[str], seed: int) -> np.ndarray:
    """One picture a caption: uint8 (N, H, W, 3).  Each has a generator of its own: batching changes no
    noise.
    """
    pictures = []
    for start in range(0, len(captions), BATCH):
        part = list(captions[start : start + BATCH])
        generators = [torch.Generator().manual_seed(seed + start + n) for n in range(len(part))]
        drawn = pipeline(
            prompt=part,
            negative_prompt=[recipe["negative_prompt"]] * len(part),
            true_cfg_scale=recipe["guidance_scale"],
            num_inference_steps=recipe["num_inference_steps"],
            height=recipe["height"],
            width=recipe["width"],
            max_sequence_length=recipe["max_sequence_length"],
            generator=generators,
            output_type="np",
        ).images
        pictures.append((drawn * 255.0).round().astype(np.uint8))
    return np.concatenate(pictures)


def score_images(
    pipeline: FluxPipeline, recipe: Mapping[str, Any], captions: list[str], seed: int = EVALUATION_SEED
) -> Scores:
    """Draw ``captions`` and judge each picture against what its caption means."""
    pictures = draw(pipeline, recipe, captions, seed)
    scenes: list[Scene] = [parse(caption) for caption in captions]
    reports = [check_image(picture, scene) for picture, scene in zip(pictures, scenes, strict=True)]
    return Scores(captions, pictures, reports)


def measure_folder(folder: Path, count: int = 200, sheets: Path | None = None) -> dict[str, Any]:
    """Figures of a folder over ``count`` held-out captions of one object and as many of two.

    The folder's own recipe says how to sample it.
    With ``sheets`` the first 36 pictures of each kind are written there as ``single.png`` and ``pair.png``.
    """
    torch.set_num_threads(1)
    recipe = json.loads((folder / "recipe.json").read_text())
    pipeline = FluxPipeline.from_pretrained(folder)
    pipeline.set_progress_bar_config(disable=True)
    figures: dict[str, Any] = {"captions": count, "recipe": recipe}
    kinds: tuple[tuple[str, Literal[1, 2]], ...] = (("single", 1), ("pair", 2))
    for kind, objects in kinds:
        scores = score_images(pipeline, recipe, held_out_captions(objects, count))
        figures[kind] = scores.figures()
        if sheets is not None:
            sheets.mkdir(parents=True, exist_ok=True)
            first = Scores(scores.captions[:36], scores.pictures[:36], scores.reports[:36])
            contact_sheet(first).save(sheets / f"{kind}.png", optimize=True)
    return figures


def contact_sheet(scores: Scores, columns: int = 6, scale: int = 3) -> Image.Image:
    """Pictures with their captions; a red frame marks a picture the checker did not accept in full."""
    cell = scores.pictures.shape[1] * scale
    wide, high = cell + 12, cell + 44
    rows = -(-len(scores.captions) // columns)
    sheet = Image.new("RGB", (columns * wide, rows * high), "white")
    pen = ImageDraw.Draw(sheet)
    for n, (caption, report) in enumerate(zip(scores.captions, scores.reports, strict=True)):
        left, top = (n % columns) * wide + 6, (n // columns) * high + 6
        picture = Image.fromarray(scores.pictures[n]).resize((cell, cell), Image.Resampling.NEAREST)
        edge = (225, 225, 225) if report.strict else (220, 0, 0)
        pen.rectangle((left - 2, top - 2, left + cell + 1, top + cell + 1), outline=edge, width=2)
        sheet.paste(picture, (left, top))
        for line, text in enumerate(_wrapped(caption, cell // 6)):
            pen.text((left, top + cell + 3 + 11 * line), text, fill="black")
    return sheet


def _wrapped(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) + 1 > width and lines[-1]:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines
