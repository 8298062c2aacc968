"""Variations that share a beginning: denoising is left at a step and goes on from there in several ways."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from pydantic import Field

from mutoscope.flows.lists import AtOnce, Prompts
from mutoscope.flows.parameters import Guidance, NegativePrompt, Prompt, Seed, Size, Steps, height_and_width
from mutoscope.platform.orchestration.engine_run import engine_run
from mutoscope.platform.orchestration.fan_out import for_each
from mutoscope.platform.orchestration.kinds import Image, Latent
from mutoscope.platform.orchestration.workflow import workflow
from mutoscope.platform.refs import ArtifactRef

BranchStep = Annotated[
    int,
    Field(
        title="Step",
        strict=True,
        ge=1,
        le=999,
        description="After how many steps the branches leave: the later, the more they share.",
    ),
]


class Branched(TypedDict):
    """The picture that went on by itself, what the branches left from, and their pictures."""

    image: Image
    kept: Latent
    branches: list[Image]


@workflow("image.branch", requires=["flux-t2i"])
async def branch_image(
    prompt: Prompt,
    variations: Prompts,
    at: BranchStep = 1,
    seed: Seed = None,
    size: Size = None,
    steps: Steps = None,
    guidance: Guidance = None,
    negative_prompt: NegativePrompt = None,
    at_once: AtOnce = 8,
) -> Branched:
    """Make a picture, and from its latents after a few steps one more for each variation of the prompt.

    A variation that is the prompt itself ends in the same bytes as the picture. Changing a variation computes
    that branch alone.
    """
    common: dict[str, Any] = {
        "negative_prompt": negative_prompt,
        "num_inference_steps": steps,
        "guidance_scale": guidance,
        "seed": seed,
        **height_and_width(size),
    }
    trunk = await engine_run("flux-t2i", prompt=prompt, keep_step=at, **common)

    async def branch(variation: str) -> ArtifactRef:
        return (await engine_run("flux-t2i", prompt=variation, start=trunk["kept"], **common))["image"]

    branches = await for_each(variations, branch, at_most=at_once)
    return {"image": trunk["image"], "kept": trunk["kept"], "branches": branches}
