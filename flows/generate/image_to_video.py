"""A picture set in motion."""

from __future__ import annotations

from mutoscope.flows.parameters import (
    Frames,
    Guidance,
    ImageReference,
    NegativePrompt,
    Prompt,
    Seed,
    Size,
    Steps,
    height_and_width,
)
from mutoscope.platform.orchestration.engine_run import engine_run
from mutoscope.platform.orchestration.kinds import Video
from mutoscope.platform.orchestration.workflow import workflow


@workflow("video.image_to_video", requires=["wan-i2v"])
async def image_to_video(
    image: ImageReference,
    prompt: Prompt,
    seed: Seed = None,
    size: Size = None,
    frames: Frames = None,
    steps: Steps = None,
    guidance: Guidance = None,
    negative_prompt: NegativePrompt = None,
) -> Video:
    """Make a video that begins with a given picture and moves as the prompt says."""
    outputs = await engine_run(
        "wan-i2v",
        image=image,
        prompt=prompt,
        negative_prompt=negative_prompt,
        num_frames=frames,
        num_inference_steps=steps,
        guidance_scale=guidance,
        seed=seed,
        **height_and_width(size),
    )
    return outputs["video"]
