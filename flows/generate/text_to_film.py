"""A video with its sound from words, both made together."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from mutoscope.flows.parameters import (
    Frames,
    Guidance,
    NegativePrompt,
    Prompt,
    Seed,
    Size,
    Sound,
    SoundGuidance,
    Steps,
    height_and_width,
)
from mutoscope.platform.orchestration.engine_run import engine_run
from mutoscope.platform.orchestration.kinds import Audio, Video
from mutoscope.platform.orchestration.workflow import workflow


class Sounding(TypedDict):
    """The video, which plays its sound, and the sound by itself if one was made."""

    video: Video
    audio: NotRequired[Audio]


@workflow("video_audio.text_to_film", requires=["ltx2-av"])
async def text_to_film(
    prompt: Prompt,
    seed: Seed = None,
    size: Size = None,
    frames: Frames = None,
    steps: Steps = None,
    guidance: Guidance = None,
    sound: Sound = True,
    sound_guidance: SoundGuidance = None,
    negative_prompt: NegativePrompt = None,
) -> Sounding:
    """Make a video and its sound from a prompt.

    Returns the video, which plays its sound, and the sound by itself, lossless.
    """
    made = await engine_run(
        "ltx2-av",
        prompt=prompt,
        negative_prompt=negative_prompt,
        num_frames=frames,
        num_inference_steps=steps,
        guidance_scale=guidance,
        audio=sound,
        audio_guidance_scale=sound_guidance,
        seed=seed,
        **height_and_width(size),
    )
    film: Sounding = {"video": made["video"]}
    if "audio" in made:
        film["audio"] = made["audio"]
    return film
