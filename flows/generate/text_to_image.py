"""A picture from words."""

from __future__ import annotations

from mutoscope.flows.parameters import Guidance, NegativePrompt, Prompt, Seed, Size, Steps, height_and_width
from mutoscope.platform.orchestration.engine_run import engine_run
from mutoscope.platform.orchestration.kinds import Image
from mutoscope.platform.orchestration.workflow import workflow


@workflow("image.text_to_image", requires=["flux-t2i"])
async def text_to_image(
    prompt: Prompt,
    seed: Seed = None,
    size: Size = None,
    steps: Steps = None,
    guidance: Guidance = None,
    negative_prompt: NegativePrompt = None,
) -> Image:
    """Make a picture from a prompt."""
    outputs = await engine_run(
        "flux-t2i",
        prompt=prompt,
        negative_prompt=negative_prompt,
        num_inference_steps=steps,
        guidance_scale=guidance,
        seed=seed,
        **height_and_width(size),
    )
    return outputs["image"]
