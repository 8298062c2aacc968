"""What a request may set on any card that generates by guided flow matching. No torch."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Guidance = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class GenerationParameters(BaseModel):
    """Families extend it and say what their prompt describes. A field left out takes the recipe's value."""

    model_config = ConfigDict(extra="forbid")

    prompt: str = Field(min_length=1)
    negative_prompt: str | None = Field(None, description="What guidance steers away from.")
    height: Annotated[int, Field(gt=0)] | None = Field(None, description="Pixels.")
    width: Annotated[int, Field(gt=0)] | None = Field(None, description="Pixels.")
    num_inference_steps: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        None, description="Denoising steps."
    )
    guidance_scale: Guidance | None = Field(
        None, description="Classifier-free guidance g in u + g(c - u); 1 and below turn it off."
    )
