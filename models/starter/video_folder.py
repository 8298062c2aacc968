"""A diffusers-format folder that ``WanImageToVideoPipeline.from_pretrained`` opens, and its recipe.json."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from diffusers import (
    AutoencoderKLWan,
    FlowMatchEulerDiscreteScheduler,
    WanImageToVideoPipeline,
    WanTransformer3DModel,
)

from mutoscope.models.starter.tokenizer import MAX_TOKENS
from mutoscope.models.starter.video_recipe import FRAMES, SIDE, VideoDitConfig
from mutoscope.models.starter.video_text import CaptionEncoder


def build_scheduler(config: VideoDitConfig) -> FlowMatchEulerDiscreteScheduler:
    """The deterministic step ``x + dt * v`` with the shift the denoiser was trained for."""
    return FlowMatchEulerDiscreteScheduler(shift=config.shift)


def write_folder(
    folder: Path,
    vae: AutoencoderKLWan,
    captions: CaptionEncoder,
    dit: WanTransformer3DModel,
    config: VideoDitConfig,
) -> None:
    """Write all parts beside ``folder``, then put them in its place at once."""
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    WanImageToVideoPipeline(
        tokenizer=captions.tokenizer,
        text_encoder=captions.encoder,
        vae=vae,
        scheduler=build_scheduler(config),
        transformer=dit,
    ).save_pretrained(partial)
    recipe = {
        "height": SIDE,
        "width": SIDE,
        "sizes": [[SIDE, SIDE]],
        "num_frames": FRAMES,
        "frame_counts": [FRAMES],
        "num_inference_steps": config.inference_steps,
        "guidance_scale": config.guidance,
        "max_sequence_length": MAX_TOKENS,
        "negative_prompt": "",
        "fps": 8,
    }
    (partial / "recipe.json").write_text(json.dumps(recipe, indent=2) + "\n")
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(partial, folder)
