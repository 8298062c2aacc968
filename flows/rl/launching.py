"""What the workflows that train have in common: their cards, their forms, and what they return."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NotRequired, TypedDict

from pydantic import BeforeValidator, Field

from mutoscope.flows.rl.asks import from_json
from mutoscope.flows.rl.collect_rollouts import ROLLED, SCORING
from mutoscope.flows.rl.collected import CARD
from mutoscope.flows.rl.configuration import read
from mutoscope.flows.rl.training import train
from mutoscope.models.registry import cards
from mutoscope.platform.orchestration.kinds import Image
from mutoscope.platform.refs import TRAINER_SUFFIX

DRAWING = ("line-charts", "picture-statistics", "contact-sheet", "video-frame")

TRAINERS = tuple(f"{card}{TRAINER_SUFFIX}" for card in ROLLED if f"{card}{TRAINER_SUFFIX}" in cards())

REQUIRED = [*ROLLED, *TRAINERS, *SCORING, CARD, *DRAWING]
"""Every card that a training may run."""

TrainingName = Annotated[
    str,
    Field(
        title="Name",
        pattern=r"^[a-zA-Z][\w-]{0,57}$",
        description="What the training is called, and the alias of its newest versions. Started again under "
        "its name, it goes on where it was.",
    ),
]
Iterations = Annotated[
    int | None,
    Field(title="Iterations", strict=True, ge=1, le=100_000, description="Empty: the recipe's."),
]
TrainSeed = Annotated[
    int | None,
    Field(
        title="Seed",
        strict=True,
        ge=0,
        lt=2**63,
        description="What everything is drawn from. Empty: the recipe's.",
    ),
]
Changes = Annotated[
    Mapping[str, Any] | None,
    BeforeValidator(from_json),
    Field(
        title="Changes",
        description="What is to be different from the recipe, as JSON by path, such as "
        '{"stages.0.train.transformer.learning_rate": 1e-4, "samples": 16}.',
    ),
]


class Training(TypedDict):
    """The curves as a picture, and which versions came of it."""

    curves: NotRequired[Image]
    summary: dict[str, Any]


async def launch(
    recipe: str,
    name: str,
    iterations: int | None,
    train_seed: int | None,
    changes: Mapping[str, Any] | None,
    **fixed: Any,
) -> Training:
    """Train by a recipe.

    Args:
        fixed: further changes by path, dots written as two underscores.

    Raises:
        InvalidInput, TrainingHalted: as `train`.
    """
    given = {"iterations": iterations, "seed": train_seed}
    own = {path.replace("__", "."): value for path, value in fixed.items()}
    chosen = {path: value for path, value in {**given, **own}.items() if value is not None}
    made = await train(name, read(recipe, {**(changes or {}), **chosen}))
    told: Training = {
        "summary": {
            "training": made.name,
            "recipe": recipe,
            "iterations": made.iterations,
            "heads": dict(made.heads),
            "best": dict(made.best),
        }
    }
    if made.curves is not None:
        told["curves"] = made.curves
    return told
