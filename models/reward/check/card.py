"""The card of the scene checks. No torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from mutoscope.models.reward.common.caption import Caption
from mutoscope.models.reward.common.parameters import INPUTS, OUTPUTS, RewardParameters, RewardRecipe
from mutoscope.platform.engine.card import Card, FolderSummary
from mutoscope.platform.errors import InvalidFolder


class CheckParameters(RewardParameters):
    """What a request may set."""

    prompt: Caption = Field(
        min_length=1,
        description="The starter caption that the sample is held against.",
        examples=["a red circle left of a blue square"],
    )


CARD = Card(
    id="scene-check",
    title="Checks starter scenes by their pixels, without a network",
    components=(),
    inputs=INPUTS,
    outputs=OUTPUTS,
    parameters=CheckParameters,
    recipe=RewardRecipe,
    inspector=f"{__name__}:inspect",
    loader=f"{__name__}:load",
    builder="mutoscope.models.reward.check.program:build",
    sources=(
        "mutoscope.models.reward.check",
        "mutoscope.models.reward.common",
        "mutoscope.models.starter.checker",
        "mutoscope.models.starter.grammar",
    ),
    run_kind="reward",
    seeded=False,
)


def inspect(folder: Path) -> FolderSummary:
    """There are no weights, so no folder holds any."""
    raise InvalidFolder(f"{folder} cannot be imported for a card without weights: it is served as it is")


def load(paths: dict[str, Path], **_: Any) -> dict[str, Any]:
    """No components to load."""
    return {}
