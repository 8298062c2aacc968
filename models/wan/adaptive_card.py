"""The `wan-adaptive` card: Wan with steps left out where the video would hardly change for them. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from mutoscope.models.wan.card import COMPONENTS, IMAGE, OUTPUTS, SOURCES, WanParameters, WanRecipe
from mutoscope.platform.engine.card import Card, Slot
from mutoscope.platform.errors import InvalidParameter

LEAST_PSNR = 30.0
"""dB. A video further than this from its uncached twin is another video, and its request fails."""
LEAST_SSIM = 0.92

Threshold = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class AdaptiveRecipe(WanRecipe):
    """A Wan folder's recipe, and how much is left out of its steps by default.

    On the starter weights the defaults leave out 60 % of 12 steps, at 46 dB or more from the full schedule.
    """

    reuse_threshold: float = Field(0.1, ge=0)
    max_reuse: int = Field(3, ge=1)
    exit_threshold: float = Field(0.05, ge=0)
    twin_rate: float = Field(0.05, ge=0, le=1)
    image: Literal["required", "optional", "none"] = Field(
        "required", description="Whether the weights take a first frame."
    )

    @property
    def needed_inputs(self) -> tuple[str, ...]:
        return ("image",) if self.image == "required" else ()

    def check_inputs(self, inputs: Mapping[str, Any]) -> None:
        """An image where one is needed, and none where none is read."""
        super().check_inputs(inputs)
        if self.image == "none" and inputs.get("image") is not None:
            raise InvalidParameter("image", "an image", "leave it out: these weights read text alone")


class AdaptiveParameters(WanParameters):
    """What a request may set."""

    reuse_threshold: Threshold | None = Field(
        None,
        description="Leave the model out of a step while the velocity is predicted to have changed by less, "
        "relatively; 0 computes every step.",
    )
    max_reuse: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Steps left out in a row, at most."
    )
    exit_threshold: Threshold | None = Field(
        None, description="Finish early when the video is predicted to change by less, relatively; 0: never."
    )
    twin_rate: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None,
        description="Share of requests that are also made with every step, to compare: PSNR and SSIM go to "
        f"the report, and below {LEAST_PSNR:g} dB or {LEAST_SSIM} the request fails.",
    )


CARD = Card(
    id="wan-adaptive",
    title="Wan with content-adaptive compute",
    components=COMPONENTS,
    inputs=(replace(IMAGE, required=False),),
    outputs=(
        *OUTPUTS,
        Slot("report", "json", "Steps saved and, if it was compared, closeness to the full schedule."),
    ),
    parameters=AdaptiveParameters,
    recipe=AdaptiveRecipe,
    inspector="mutoscope.models.wan.folder:inspect_adaptive",
    loader="mutoscope.models.wan.components:load",
    builder="mutoscope.models.wan.adaptive:build",
    sources=SOURCES,
)
