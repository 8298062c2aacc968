"""Pictures of several prompts, several of each."""

from __future__ import annotations

from itertools import product
from typing import TypedDict

from mutoscope.flows.generate.text_to_image import text_to_image
from mutoscope.flows.lists import AtOnce, Count, Prompts, seeds_from
from mutoscope.flows.parameters import Guidance, NegativePrompt, Seed, Size, Steps
from mutoscope.platform.orchestration.fan_out import for_each
from mutoscope.platform.orchestration.kinds import Image
from mutoscope.platform.orchestration.workflow import workflow
from mutoscope.platform.refs import ArtifactRef


class Pictures(TypedDict):
    """Those of the first prompt first, by seed."""

    images: list[Image]


@workflow("image.fan_out", requires=[text_to_image])
async def fan_out(
    prompts: Prompts,
    count: Count = 1,
    seed: Seed = None,
    size: Size = None,
    steps: Steps = None,
    guidance: Guidance = None,
    negative_prompt: NegativePrompt = None,
    at_once: AtOnce = 8,
) -> Pictures:
    """Make pictures of each prompt, with seeds in a row. The first that fails ends the rest."""

    async def picture(cell: tuple[str, int]) -> ArtifactRef:
        return await text_to_image(
            prompt=cell[0],
            seed=cell[1],
            size=size,
            steps=steps,
            guidance=guidance,
            negative_prompt=negative_prompt,
        )

    cells = product(prompts, seeds_from(seed, count))
    return {"images": await for_each(cells, picture, at_most=at_once)}
