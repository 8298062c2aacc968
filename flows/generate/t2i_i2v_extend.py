"""A longer video from words: a picture, a first video from it, and as many continuations as wanted."""

from __future__ import annotations

from typing import Annotated, TypedDict

from pydantic import Field

from mutoscope.flows.generate.extend_video import extend_video
from mutoscope.flows.generate.text_to_video import text_to_video
from mutoscope.flows.lists import seeds_from
from mutoscope.flows.parameters import (
    MAX_PROMPT,
    Frames,
    NegativePrompt,
    Prompt,
    Seed,
    Size,
    Steps,
    VideoSteps,
)
from mutoscope.platform.orchestration.kinds import Image, Video
from mutoscope.platform.orchestration.workflow import workflow

Extensions = Annotated[
    int,
    Field(title="Extensions", strict=True, ge=0, le=16, description="How often the video is continued."),
]

Then = Annotated[
    str | None,
    Field(
        title="Then",
        max_length=MAX_PROMPT,
        description="What happens in the continuations, in words. Empty: what happened before.",
    ),
]


class Film(TypedDict):
    """The whole video, its first picture, and the parts it was joined from."""

    video: Video
    image: Image
    parts: list[Video]


@workflow("image_video.t2i_i2v_extend", requires=[text_to_video, extend_video])
async def t2i_i2v_extend(
    prompt: Prompt,
    seed: Seed = None,
    extensions: Extensions = 1,
    then: Then = None,
    size: Size = None,
    frames: Frames = None,
    steps: Steps = None,
    video_steps: VideoSteps = None,
    negative_prompt: NegativePrompt = None,
) -> Film:
    """Make a picture from a prompt, a video from the picture, and continue the video from its last frame.

    Each continuation has a seed of its own, in a row from the first. Without any, the first video is the
    result.
    """
    first, *later = seeds_from(seed, 1 + extensions)
    made = await text_to_video(
        prompt=prompt,
        seed=first,
        size=size,
        frames=frames,
        steps=steps,
        video_steps=video_steps,
        negative_prompt=negative_prompt,
    )
    video, parts = made["video"], [made["video"]]
    for each in later:
        extended = await extend_video(
            video=video,
            prompt=then or prompt,
            seed=each,
            frames=frames,
            steps=video_steps or steps,
            negative_prompt=negative_prompt,
        )
        video = extended["video"]
        parts.append(extended["added"])
    return {"video": video, "image": made["image"], "parts": parts}
