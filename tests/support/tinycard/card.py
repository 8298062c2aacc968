"""The declaration, without torch."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from mutoscope.platform.engine.card import Card, ComponentSpec, Recipe, Slot


class TinyRecipe(Recipe):
    """Nothing beyond the common fields."""


class TinyParameters(BaseModel):
    """What a request may set."""

    model_config = ConfigDict(extra="forbid")

    num_inference_steps: int | None = Field(None, ge=1, description="Steps of the loop.")
    gate: str | None = Field(
        None, description="Path. Step `gate_step` touches `<gate>.reached` and waits until the path exists."
    )
    gate_step: int = Field(0, ge=0)
    trouble: Literal["error", "invalid", "memory", "kill"] | None = Field(
        None, description="What happens at step `trouble_step`."
    )
    trouble_step: int = Field(0, ge=0)


CARD = Card(
    id="tiny-test",
    title="Near-empty test card",
    components=(ComponentSpec("net", "safetensors", ("Matrix",)),),
    inputs=(Slot("image", "image", "Added to the noise, uint8 (H, W, 3).", required=False),),
    outputs=(Slot("image", "image", "uint8 (4, 4, 3)."), Slot("latent", "latent", "float32 (4, 4).")),
    parameters=TinyParameters,
    recipe=TinyRecipe,
    inspector="tests.support.tinycard.folder:inspect",
    loader="tests.support.tinycard.program:load",
    builder="tests.support.tinycard.program:build",
    sources=("tests.support.tinycard",),
)
