"""A picture's model and a video's, by what the film is worth."""

from __future__ import annotations

from mutoscope.flows.rl.launching import (
    REQUIRED,
    Changes,
    Iterations,
    Training,
    TrainingName,
    TrainSeed,
    launch,
)
from mutoscope.platform.orchestration.workflow import workflow


@workflow("rl.train_workflow_rl", requires=REQUIRED)
async def train_workflow_rl(
    name: TrainingName,
    iterations: Iterations = None,
    train_seed: TrainSeed = None,
    changes: Changes = None,
) -> Training:
    """Train text to image and image to video by the reward of the finished film, across the boundary of the
    models: each has versions of its own.
    """
    return await launch("train_workflow_rl", name, iterations, train_seed, changes)
