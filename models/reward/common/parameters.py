"""What a reward card declares: its slots, and what a request may set. No torch."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from mutoscope.platform.engine.card import Recipe, Slot

INPUTS = (
    Slot("image", "image", "The picture to score.", required=False),
    Slot("video", "video", "The clip to score, where it is no picture.", required=False),
)
OUTPUTS = (Slot("reward", "reward", "The score, or why there is none."),)


class RewardRecipe(Recipe):
    """Defaults of a scorer. It takes pictures of any size; the size here is what it scales them to, if it
    does."""

    height: int = 64
    width: int = 64
    num_inference_steps: int = 1
    guidance_scale: float = 1.0
    max_sequence_length: int = 77
    frames: int = Field(9, ge=1, description="Frames of a clip that are looked at.")


class RewardParameters(BaseModel):
    """Cards extend it and say what a sample is held against. A field left out takes the recipe's value."""

    model_config = ConfigDict(extra="forbid")

    frames: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        None, description="Frames of a clip that are looked at, evenly spaced from the first to the last."
    )
    time_limit: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        None, description="Seconds, from the first step on, after which scoring is given up; none: never."
    )
