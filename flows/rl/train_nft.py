"""DiffusionNFT: no likelihoods, any sampler."""

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


@workflow("rl.train_nft", requires=REQUIRED)
async def train_nft(
    name: TrainingName,
    iterations: Iterations = None,
    train_seed: TrainSeed = None,
    changes: Changes = None,
) -> Training:
    """Train a generator with DiffusionNFT: finished samples, renoised, pull its velocity towards what was
    rewarded (arXiv 2509.16117).
    """
    return await launch("train_nft", name, iterations, train_seed, changes)
