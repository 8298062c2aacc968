"""Flow-GRPO: a flow's stochastic steps are policy steps."""

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


@workflow("rl.train_flow_grpo", requires=REQUIRED)
async def train_flow_grpo(
    name: TrainingName,
    iterations: Iterations = None,
    train_seed: TrainSeed = None,
    changes: Changes = None,
) -> Training:
    """Train a generator with Flow-GRPO: rollouts by a stochastic law, clipped policy gradient
    (arXiv 2505.05470)."""
    return await launch("train_flow_grpo", name, iterations, train_seed, changes)
