"""Pictures of refined prompts for the eye: of a training's first rollouts, and of its last ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from mutoscope.flows.rl import records
from mutoscope.models.media.layout import Content, Pixels, fitted
from mutoscope.models.media.sheet import drawn as sheet
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.training import notes
from mutoscope.platform.training.groups import RolloutRecord, Sample
from tests.learning import rolled
from tests.learning.refinement import means

SHOWN = 4
"""Samples of a prompt, from each end of the training."""
CELL = 72
"""Pixels of a picture's side."""


def draw(runtime: Runtime, training: Mapping[str, Any], path: Path) -> None:
    """The first samples that refiners had a part in, of each prompt, in the first iteration and in the last;
    nothing where nobody refined."""
    last = training["iterations"][-1]["iteration"] if training["iterations"] else 0
    before, after = (_groups(runtime, training["name"], at) for at in (0, last))
    prompts = [prompt for prompt, (_, samples) in before.items() if len(samples) >= SHOWN and last]
    if not prompts:
        return
    cells = [
        _picture(runtime, group, one)
        for prompt in prompts
        for group, samples in (before[prompt], after[prompt])
        for one in samples[:SHOWN]
    ]
    content = Content(
        cells,
        2 * SHOWN,
        f"{training['name']}: refined samples of iterations 0 (left) and {last}",
        [f"{side} {number}" for side in ("first", "last") for number in range(1, SHOWN + 1)],
        [f"{prompt} [{_right(before[prompt])} > {_right(after[prompt])} as wanted]" for prompt in prompts],
    )
    Image.fromarray(sheet(content)).save(path, optimize=True)


Group = tuple[RolloutRecord, list[Sample]]


def _groups(runtime: Runtime, name: str, iteration: int) -> dict[str, Group]:
    """An iteration's groups by prompt, each with its refined samples."""
    record = records.read(runtime, name, notes.ITERATION, iteration)
    if record is None:
        return {}
    return {
        group.prompt: (group, [one for one in group.samples if one.refined])
        for group in rolled.groups(runtime, record)
    }


def _right(group: Group) -> str:
    record, samples = group
    return f"{sum(means(one.prompt, record.target) for one in samples)}/{len(samples)}"


def _picture(runtime: Runtime, group: RolloutRecord, sample: Sample) -> Pixels:
    """What a sample's rollout made: the run that made its trajectory also made its picture."""
    order = [one.seed for one in group.samples if one.trajectory is not None]
    digest = group.trajectories[order.index(sample.seed)]
    runs = runtime.catalog.runs
    made = next(
        outputs["image"]
        for run in runs.generated_by(digest)
        if run.seed == sample.seed and "image" in (outputs := runs.outputs(run.id))
    )
    return fitted(np.asarray(Image.open(runtime.store.local_path(made.digest)).convert("RGB")), CELL)
