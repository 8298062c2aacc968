"""The starter weights from nothing: the training that made what ships, as a recorded run."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from pydantic import Field

from mutoscope.models.starter.trainers import (
    IMAGE_TRAINER,
    REFINER_TRAINER,
    SCORER_TRAINER,
    SHIPPED_SEEDS,
    TRAINED,
    VIDEO_TRAINER,
)
from mutoscope.platform.orchestration.engine_run import engine_run
from mutoscope.platform.orchestration.runtime import get_runtime
from mutoscope.platform.orchestration.weights import publish_trained
from mutoscope.platform.orchestration.workflow import workflow
from mutoscope.platform.refs import ArtifactRef

TRAINERS = {
    "image": IMAGE_TRAINER.id,
    "video": VIDEO_TRAINER.id,
    "refiner": REFINER_TRAINER.id,
    "scorer": SCORER_TRAINER.id,
}

Model = Annotated[
    Literal["image", "video", "refiner", "scorer"],
    Field(title="Model", description="Which of them to train."),
]
TrainSeed = Annotated[
    int | None,
    Field(
        title="Seed", ge=0, lt=2**63, description="Empty: the seed of the weights that ship with the package."
    ),
]
StageSteps = Annotated[
    int | None,
    Field(
        title="Steps",
        ge=1,
        le=1_000_000,
        description="Empty: the recipe's. Only for a model with this stage.",
    ),
]
Alias = Annotated[
    str,
    Field(
        title="Alias",
        min_length=1,
        pattern=r"^[a-zA-Z][\w-]*$",
        description="What the new versions are called. Only “live” is what later runs use.",
    ),
]


@workflow("maintenance.train_starter", requires=list(TRAINERS.values()))
async def train_starter(
    model: Model,
    train_seed: TrainSeed = None,
    vae_steps: StageSteps = None,
    polish_steps: StageSteps = None,
    text_steps: StageSteps = None,
    dit_steps: StageSteps = None,
    bank_size: StageSteps = None,
    lm_steps: StageSteps = None,
    scorer_steps: StageSteps = None,
    alias: Alias = "candidate",
) -> dict[str, ArtifactRef]:
    """Train a starter model and publish its components as weight versions.

    A worker that dies on the way is succeeded by one that continues from the last checkpoint. Returns the
    weights by component.
    """
    trainer = TRAINERS[model]
    steps: dict[str, Any] = {
        "vae_steps": vae_steps,
        "polish_steps": polish_steps,
        "text_steps": text_steps,
        "dit_steps": dit_steps,
        "bank_size": bank_size,
        "lm_steps": lm_steps,
        "scorer_steps": scorer_steps,
    }
    made = await engine_run(
        trainer,
        seed=SHIPPED_SEEDS[trainer] if train_seed is None else train_seed,
        **{name: count for name, count in steps.items() if count is not None},
    )
    await asyncio.to_thread(publish_trained, get_runtime(), TRAINED[trainer], made, alias=alias)
    outputs: dict[str, Any] = {role: ref for role, ref in made.items() if ":" not in role}
    return outputs
