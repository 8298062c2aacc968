"""A video continued: its last frame is set in motion, and what that makes is put behind it."""

from __future__ import annotations

from typing import Annotated, TypedDict

from pydantic import Field

from mutoscope.flows.generate.image_to_video import image_to_video
from mutoscope.flows.parameters import Frames, Guidance, NegativePrompt, Prompt, Seed, Steps
from mutoscope.platform.orchestration.engine_run import engine_run
from mutoscope.platform.orchestration.kinds import Video
from mutoscope.platform.orchestration.workflow import workflow

Source = Annotated[
    Video,
    Field(title="Video", description="The video to continue: video:3fa9c1d2e4f5, or any unique beginning."),
]


class Extended(TypedDict):
    """The video as it now is, and the part that was made for it."""

    video: Video
    added: Video


@workflow("video.extend", requires=["video-frame", image_to_video, "video-join"])
async def extend_video(
    video: Source,
    prompt: Prompt,
    seed: Seed = None,
    frames: Frames = None,
    steps: Steps = None,
    guidance: Guidance = None,
    negative_prompt: NegativePrompt = None,
) -> Extended:
    """Continue a video as the prompt says.

    The part that is added begins with the last frame there is, which is shown once. Sound is not continued.
    """
    last = await engine_run("video-frame", video=video)
    added = await image_to_video(
        image=last["image"],
        prompt=prompt,
        seed=seed,
        size=f"{video.meta['width']}x{video.meta['height']}",
        frames=frames,
        steps=steps,
        guidance=guidance,
        negative_prompt=negative_prompt,
    )
    joined = await engine_run("video-join", videos=[video, added], fps=video.meta["fps"], shared_frames=1)
    return {"video": joined["video"], "added": added}
