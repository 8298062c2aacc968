"""A video from words: a picture first, then the same words set it in motion."""

from __future__ import annotations

from typing import Any, TypedDict

from mutoscope.flows.parameters import (
    Approve,
    Frames,
    NegativePrompt,
    Prompt,
    Seed,
    Size,
    Steps,
    VideoSteps,
    height_and_width,
)
from mutoscope.platform.orchestration.approval import approval
from mutoscope.platform.orchestration.engine_run import engine_run
from mutoscope.platform.orchestration.kinds import Image, Video
from mutoscope.platform.orchestration.workflow import workflow


class Filmed(TypedDict):
    """The video and the picture it begins with."""

    video: Video
    image: Image


@workflow("image_video.t2i_i2v", requires=["flux-t2i", "wan-i2v"])
async def text_to_video(
    prompt: Prompt,
    seed: Seed = None,
    size: Size = None,
    frames: Frames = None,
    steps: Steps = None,
    video_steps: VideoSteps = None,
    negative_prompt: NegativePrompt = None,
    approve: Approve = False,
) -> Filmed:
    """Make a picture from a prompt, then a video that begins with it.

    `steps` counts for both models unless `video_steps` sets the video's own. With `approve`, a person says
    between the two whether to go on. Returns the video and its first picture.
    """
    common: dict[str, Any] = {
        "prompt": prompt,
        "negative_prompt": negative_prompt,
        "seed": seed,
        **height_and_width(size),
    }
    pictured = await engine_run("flux-t2i", num_inference_steps=steps, **common)
    if approve:
        await approval("image", pictured["image"], question="Make the video from this picture?")
    filmed = await engine_run(
        "wan-i2v",
        image=pictured["image"],
        num_frames=frames,
        num_inference_steps=video_steps or steps,
        **common,
    )
    return {"video": filmed["video"], "image": pictured["image"]}
