"""A score for a picture or a video that is already there."""

from __future__ import annotations

from typing import Any

from mutoscope.flows.parameters import OptionalImage, OptionalVideo, RewardCard, Target
from mutoscope.platform.orchestration.engine_run import engine_run
from mutoscope.platform.orchestration.kinds import RewardRef
from mutoscope.platform.orchestration.workflow import workflow

TARGETS = {"reward-scene": "prompt", "reward-ocr": "text", "reward-clip": "prompt", "scene-check": "prompt"}
"""Which parameter of each card says what a sample is held against."""


@workflow("reward.score", requires=list(TARGETS))
async def score(
    reward: RewardCard, prompt: Target, image: OptionalImage = None, video: OptionalVideo = None
) -> RewardRef:
    """Score one picture or video. The reward says why where there is no score."""
    given: dict[str, Any] = {"image": image, "video": video, TARGETS[reward]: prompt}
    outputs = await engine_run(reward, **given)
    return outputs["reward"]
