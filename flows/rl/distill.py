"""A student of few steps from a teacher that was trained by rewards: base, teacher, student, one lineage."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

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

Teacher = Annotated[
    str,
    Field(
        title="Teacher",
        pattern=r"^flux-t2i/transformer@\d+$",
        description="The version that is taught, by its number, such as flux-t2i/transformer@12.",
    ),
]


@workflow("rl.distill", requires=REQUIRED)
async def distill(
    name: TrainingName,
    teacher: Teacher,
    iterations: Iterations = None,
    train_seed: TrainSeed = None,
    changes: Changes = None,
) -> Training:
    """Teach a student to reach in few steps what its teacher reaches in many.

    The student begins as the teacher. Rollouts are the teacher's, so the weights it makes descend from those
    that rewards have trained, and from all that taught them.
    """
    student = {"stages__0__teacher": [teacher], "stages__0__weights": [teacher]}
    return await launch("distill", name, iterations, train_seed, changes, **student)
