"""Several refiners in a chain and a generator, with shared or per-expert credit."""

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


@workflow("rl.train_multi_expert", requires=REQUIRED)
async def train_multi_expert(
    name: TrainingName,
    iterations: Iterations = None,
    train_seed: TrainSeed = None,
    changes: Changes = None,
) -> Training:
    """Train a chain of prompt refiners and the generator behind it."""
    return await launch("train_multi_expert", name, iterations, train_seed, changes)
