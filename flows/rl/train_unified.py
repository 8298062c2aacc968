"""One reward, two experts: a refiner's tokens and a generator's steps."""

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


@workflow("rl.train_unified", requires=REQUIRED)
async def train_unified(
    name: TrainingName,
    iterations: Iterations = None,
    train_seed: TrainSeed = None,
    changes: Changes = None,
) -> Training:
    """Train a prompt refiner and the generator behind it by one reward, each with its own learning rate.

    With `changes={"stages.0.train": {"refiner": {...}}}` the generator stays as it is: prompt-only.
    """
    return await launch("train_unified", name, iterations, train_seed, changes)
