"""The card that makes a group's record of its rollouts and rewards. It computes nothing at random. No torch.

A group on the record is a run like any other: it used the trajectories, rewards and tokens of its samples,
and generated the record and the trajectory that training reads. So lineage leads from weights through the
group to every sample and every scorer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from mutoscope.platform.engine.card import Card, FolderSummary, Recipe, Slot
from mutoscope.platform.errors import InvalidFolder

_EXAMPLE = {
    "card": "flux-t2i",
    "prompt": "a red circle left of a blue square",
    "target": "a red circle left of a blue square",
    "draw": {"seed": 0, "iteration": 0, "prompt_index": 0},
    "parameters": {},
    "group_seed": 0,
    "law": "flow-sde",
    "window": [0, 2],
    "noise_scale": 0.7,
    "weights": {},
    "versions": {},
    "rewards": {"reward-scene": 1.0},
    "samples": [],
    "reason": "nothing was sampled",
}


class GroupRecipe(Recipe):
    """Nothing is generated here; the numbers are those of an example."""

    height: int = 64
    width: int = 64
    num_inference_steps: int = 1
    guidance_scale: float = 1.0
    max_sequence_length: int = 1


class GroupParameters(BaseModel):
    """What the group is."""

    model_config = ConfigDict(extra="forbid")

    record: dict[str, Any] = Field(
        description="A RolloutRecord whose trajectories are those of the samples, one by one.",
        examples=[_EXAMPLE],
    )


CARD = Card(
    id="rollout-group",
    title="The record of a group of rollouts",
    components=(),
    inputs=(
        Slot(
            "trajectories", "trajectory", "Those of the samples, in their order.", required=False, many=True
        ),
        Slot("rewards", "reward", "What was said of the samples.", required=False, many=True),
        Slot("tokens", "json", "What refiners wrote, in the record's order.", required=False, many=True),
    ),
    outputs=(
        Slot("rollout", "json", "The record; see `mutoscope.platform.training.groups`."),
        Slot(
            "trajectory",
            "trajectory",
            "The samples in one file, where they share schedule, window, weights and conditioning.",
            required=False,
        ),
    ),
    parameters=GroupParameters,
    recipe=GroupRecipe,
    inspector=f"{__name__}:inspect",
    loader=f"{__name__}:load",
    builder="mutoscope.platform.training.rollout_program:build",
    sources=(
        "mutoscope.platform.training.groups",
        "mutoscope.platform.training.rollout_card",
        "mutoscope.platform.training.rollout_program",
        "mutoscope.platform.trajectory",
    ),
    seeded=False,
)


def inspect(folder: Path) -> FolderSummary:
    """There are no weights, so no folder holds any."""
    raise InvalidFolder(f"{folder} cannot be imported for a card without weights: it is served as it is")


def load(paths: dict[str, Path], **_: Any) -> dict[str, Any]:
    """No components to load."""
    return {}
