"""Figures of a trained video folder on held-out captions, by the independent checker, and strips to look at.

Every clip is made by ``WanImageToVideoPipeline`` from the folder alone, with its ``recipe.json``; the first
frame given is the rendered picture of the scene, or one that an image model drew for the same caption.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from diffusers import WanImageToVideoPipeline
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from mutoscope.models.starter.checker import VideoReport, check_video
from mutoscope.models.starter.grammar import MOTIONS, Scene, canonical_scenes, caption_of
from mutoscope.models.starter.motion import animate
from mutoscope.models.starter.render import place
from mutoscope.models.starter.stage import seed_for

EVALUATION_SEED: Final = 31
CAPTIONS: Final = 210
"""Thirty held-out scenes for each of the seven motions."""
STRIP_FRAMES: Final = (0, 2, 5, 7, 9, 11, 14, 16)

Frames = NDArray[np.uint8]
Still = NDArray[np.uint8]


@dataclass(frozen=True)
class Trial:
    """One held-out scene with its true clip: uint8 (T, H, W, 3)."""

    scene: Scene
    seed: int
    truth: Frames

    @property
    def caption(self) -> str:
        return caption_of(self.scene)


def held_out_trials(count: int = CAPTIONS, seed: int = EVALUATION_SEED) -> list[Trial]:
    """``count`` trials: motions in turn, a quarter of the scenes with one object, as in training."""
    trials = []
    for index in range(count):
        rng = np.random.default_rng(seed_for(seed, index))
        pool = canonical_scenes(1 if rng.random() < 0.25 else 2, "held_out")
        scene = replace(pool[rng.integers(len(pool))], motion=MOTIONS[index % len(MOTIONS)])
        scene = scene.swapped() if rng.random() < 0.5 else scene
        trials.append(Trial(scene, index, animate(scene, place(scene, rng))))
    return trials


class FolderSampler:
    """A folder opened by the reference pipeline: caption and picture in, frames out."""

    def __init__(self, folder: Path) -> None:
        self.recipe: dict[str, Any] = json.loads((folder / "recipe.json").read_text())
        self.pipeline = WanImageToVideoPipeline.from_pretrained(folder)
        self.pipeline.set_progress_bar_config(disable=True)

    def __call__(self, caption: str, image: Still, seed: int) -> Frames:
        """Frames uint8 (T, H, W, 3)."""
        recipe = self.recipe
        frames = self.pipeline(
            image=Image.fromarray(image),
            prompt=caption,
            negative_prompt=recipe["negative_prompt"],
            height=recipe["height"],
            width=recipe["width"],
            num_frames=recipe["num_frames"],
            num_inference_steps=recipe["num_inference_steps"],
            guidance_scale=recipe["guidance_scale"],
            max_sequence_length=recipe["max_sequence_length"],
            generator=torch.Generator().manual_seed(seed),
            output_type="np",
        ).frames[0]
        return np.rint(frames * 255.0).astype(np.uint8)


def summary(trials: Sequence[Trial], reports: Sequence[VideoReport]) -> dict[str, Any]:
    """Shares and means over clips; ``motion`` counts a clip when all its objects move as said."""
    psnr = np.minimum([r.first_frame_psnr for r in reports], 99.0)
    right = np.array([r.motion_right for r in reports])
    named = np.array([t.scene.motion for t in trials])
    return {
        "clips": len(trials),
        "motion": float(right.mean()),
        "motion_by_word": {
            word: float(right[named == word].mean()) for word in MOTIONS if (named == word).any()
        },
        "first_frame_psnr": float(psnr.mean()),
        "first_frame_psnr_lowest": float(psnr.min()),
        "last_colour": float(np.mean([c for r in reports for c in r.last.colour])),
        "last_shape": float(np.mean([s for r in reports for s in r.last.shape])),
        "last_background": float(np.mean([r.last.background for r in reports])),
        "last_count": float(np.mean([r.last.count for r in reports])),
    }


def measure(
    make: Callable[[str, Still, int], Frames],
    trials: Sequence[Trial],
    first_image: Callable[[Trial], Still] = lambda trial: trial.truth[0],
) -> tuple[dict[str, Any], list[Frames], list[VideoReport]]:
    """Make and judge a clip per trial, each starting from ``first_image``."""
    clips, reports = [], []
    for trial in trials:
        image = first_image(trial)
        clips.append(make(trial.caption, image, trial.seed))
        reports.append(check_video(clips[-1], trial.scene, image))
    return summary(trials, reports), clips, reports


def judge_the_judge(trials: Sequence[Trial]) -> dict[str, float]:
    """The checker's own figures: true clips must pass, and captions dealt to other clips must fail."""
    count = len(trials)
    matched = [check_video(t.truth, t.scene, t.truth[0]) for t in trials]
    # A shift that is no multiple of the number of motions gives every clip another motion's caption.
    dealt = [check_video(t.truth, trials[(i + 3) % count].scene, t.truth[0]) for i, t in enumerate(trials)]

    def share(reports: list[VideoReport]) -> float:
        return float(np.mean([r.motion_right and r.last.strict for r in reports]))

    return {"truth": share(matched), "shuffled_captions": share(dealt)}


def shape_confusion(trials: Sequence[Trial], reports: Sequence[VideoReport]) -> dict[str, float]:
    """Share of last-frame shapes named rightly, by motion and by said shape."""
    rows: dict[str, list[float]] = {}
    for trial, report in zip(trials, reports, strict=True):
        for said, score in zip(trial.scene.objects, report.last.shape, strict=True):
            rows.setdefault(f"{trial.scene.motion}: {said.shape}", []).append(score)
    return {key: float(np.mean(scores)) for key, scores in sorted(rows.items())}


def strip_sheet(captions: Sequence[str], clips: Sequence[Frames], scale: int = 2) -> Image.Image:
    """One row a clip: its caption above eight of its frames."""
    side = clips[0].shape[1] * scale
    margin, line = 4, 14
    width = margin + len(STRIP_FRAMES) * (side + margin)
    sheet = Image.new("RGB", (width, margin + len(clips) * (line + side + margin)), (90, 90, 96))
    draw = ImageDraw.Draw(sheet)
    for row, (caption, clip) in enumerate(zip(captions, clips, strict=True)):
        top = margin + row * (line + side + margin)
        draw.text((margin, top), caption, fill=(255, 255, 255))
        for column, frame in enumerate(STRIP_FRAMES):
            picture = Image.fromarray(clip[frame]).resize((side, side), Image.Resampling.NEAREST)
            sheet.paste(picture, (margin + column * (side + margin), top + line))
    return sheet


def measure_folder(folder: Path, captions: int = CAPTIONS, sheets: Path | None = None) -> dict[str, Any]:
    """Figures of a video folder on held-out captions; strips of the first clips go into ``sheets``."""
    torch.set_num_threads(1)
    trials = held_out_trials(captions)
    figures, clips, reports = measure(FolderSampler(folder), trials)
    figures["last_shape_by_motion"] = shape_confusion(trials, reports)
    figures["checker"] = judge_the_judge(trials)
    if sheets is not None:
        sheets.mkdir(parents=True, exist_ok=True)
        shown = [i for i in range(len(trials)) if i < 2 * len(MOTIONS)]
        strip_sheet([trials[i].caption for i in shown], [clips[i] for i in shown]).save(
            sheets / "wan-i2v-strips.png"
        )
    return figures
