"""The card of the scene scorer. No torch."""

from __future__ import annotations

from pydantic import Field

from mutoscope.models.reward.common.caption import Caption
from mutoscope.models.reward.common.parameters import INPUTS, OUTPUTS, RewardParameters, RewardRecipe
from mutoscope.platform.engine.card import Card, ComponentSpec


class SceneParameters(RewardParameters):
    """What a request may set."""

    prompt: Caption = Field(
        min_length=1,
        description="The starter caption that the sample is held against.",
        examples=["a red circle left of a blue square"],
    )


CARD = Card(
    id="reward-scene",
    title="Scores starter scenes: colours, shapes, relation, background, motion",
    components=(ComponentSpec("scorer", "mutoscope.models.reward.scene.net", ("SceneScorer",)),),
    inputs=INPUTS,
    outputs=OUTPUTS,
    parameters=SceneParameters,
    recipe=RewardRecipe,
    inspector="mutoscope.models.reward.scene.folder:inspect",
    loader="mutoscope.models.reward.scene.components:load",
    builder="mutoscope.models.reward.scene.program:build",
    sources=(
        "mutoscope.models.reward.scene",
        "mutoscope.models.reward.common",
        "mutoscope.models.common",
        "mutoscope.models.starter.grammar",
    ),
    run_kind="reward",
    seeded=False,
)
