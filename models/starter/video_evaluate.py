"""Figures of a trained video folder on held-out captions, by the independent checker, and strips to look at.

Clips are made from the folder's own parts with its ``recipe.json``, as ``WanImageToVideoPipeline`` does,
but many at a time.  The first frame given is the rendered scene, or a picture that an image model drew.
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
from mutoscope.models.starter.video_bank import LATENT_SHAPE, condition, denormalised, encode_image
from mutoscope.models.starter.video_vae import decode_clip, lean

EVALUATION_SEED: Final = 31
CAPTIONS: Final = 210
"""Thirty held-out scenes for each of the seven motions."""
STRIP_FRAMES: Final = (0, 2, 5, 7, 9, 11, 14, 16)

BATCH: Final = 15

Frames = NDArray[np.uint8]
Still = NDArray[np.uint8]
Maker = Callable[[Sequence[str], Sequence[Still], Sequence[int]], list[Frames]]


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
    """A folder's parts, opened by the reference pipeline: captions and pictures in, frames out."""

    def __init__(self, folder: Path) -> None:
        self.recipe: dict[str, Any] = json.loads((folder / "recipe.json").read_text())
        self.pipeline = WanImageToVideoPipeline.from_pretrained(folder)
        self.pipeline.set_progress_bar_config(disable=True)

    def reference(self, caption: str, image: Still, seed: int) -> Frames:
        """Frames uint8 (T, H, W, 3) by the pipeline itself, which takes one picture a call."""
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
        return _to_pixels(frames)

    @torch.no_grad()
    def __call__(
        self, captions: Sequence[str], images: Sequence[Still], seeds: Sequence[int]
    ) -> list[Frames]:
        """The clips ``reference`` would make one by one (to rounding), made together."""
        parts, recipe = self.pipeline, self.recipe
        noise = [torch.randn(1, *LATENT_SHAPE, generator=torch.Generator().manual_seed(s)) for s in seeds]
        latents = torch.cat(noise)
        given = torch.stack([torch.from_numpy(i) for i in images]).permute(0, 3, 1, 2).float() / 127.5 - 1.0
        image_condition = condition(encode_image(parts.vae, given))
        text, empty = parts.encode_prompt(
            list(captions),
            recipe["negative_prompt"],
            do_classifier_free_guidance=recipe["guidance_scale"] > 1,
            max_sequence_length=recipe["max_sequence_length"],
        )
        parts.scheduler.set_timesteps(recipe["num_inference_steps"])
        for step in parts.scheduler.timesteps:
            model_input, when = torch.cat([latents, image_condition], dim=1), step.expand(len(latents))
            velocity = parts.transformer(model_input, when, text, return_dict=False)[0]
            if empty is not None:
                unsaid = parts.transformer(model_input, when, empty, return_dict=False)[0]
                velocity = unsaid + recipe["guidance_scale"] * (velocity - unsaid)
            latents = parts.scheduler.step(velocity, step, latents, return_dict=False)[0]
        with lean(parts.vae):
            clips = decode_clip(parts.vae, denormalised(parts.vae, latents))
        return [_to_pixels(clip.permute(1, 2, 3, 0).numpy()) for clip in (clips / 2 + 0.5).clamp(0, 1)]


def _to_pixels(frames: NDArray[np.float32]) -> Frames:
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
    make: Maker,
    trials: Sequence[Trial],
    first_image: Callable[[Trial], Still] = lambda trial: trial.truth[0],
) -> tuple[dict[str, Any], list[Frames], list[VideoReport]]:
    """Make and judge a clip per trial, each starting from ``first_image``."""
    clips: list[Frames] = []
    images = [first_image(trial) for trial in trials]
    for start in range(0, len(trials), BATCH):
        part = slice(start, start + BATCH)
        chosen = trials[part]
        clips += make([t.caption for t in chosen], images[part], [t.seed for t in chosen])
    reports = [check_video(c, t.scene, i) for c, t, i in zip(clips, trials, images, strict=True)]
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
