"""The card of written text. No torch."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from mutoscope.models.reward.common.parameters import INPUTS, OUTPUTS, RewardParameters, RewardRecipe
from mutoscope.platform.engine.card import Card, ComponentSpec


class OcrRecipe(RewardRecipe):
    """How text is read. Pinned with every run, like the recipe of any card."""

    frames: int = Field(3, ge=1, description="Frames of a clip that are looked at.")
    least_side: int = Field(
        96,
        ge=1,
        description="Smaller pictures are enlarged by a whole number until they have this side, pixels.",
    )
    confidence: float = Field(0.5, ge=0, le=1, description="Lines read with less are taken for no text.")
    releases: Mapping[str, str] = Field(
        default_factory=dict, description="Release of each library that decides what is read."
    )


class OcrParameters(RewardParameters):
    """What a request may set."""

    text: str = Field(min_length=1, description="What should be written.", examples=["OPEN"])
    match_case: bool = Field(False, description="Whether capital letters count.")


CARD = Card(
    id="reward-ocr",
    title="Scores written text: what is read against what is wanted",
    components=(ComponentSpec("scorer", "rapidocr", ("RapidOCR",)),),
    inputs=INPUTS,
    outputs=OUTPUTS,
    parameters=OcrParameters,
    recipe=OcrRecipe,
    inspector="mutoscope.models.reward.ocr.folder:inspect",
    loader="mutoscope.models.reward.ocr.components:load",
    builder="mutoscope.models.reward.ocr.program:build",
    sources=("mutoscope.models.reward.ocr", "mutoscope.models.reward.common"),
    run_kind="reward",
    seeded=False,
)
