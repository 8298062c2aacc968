"""Pictures of a training: its curves, and samples of its evaluations. Each is a run, and so has a lineage."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from mutoscope.flows.rl import records
from mutoscope.flows.rl.course import Course
from mutoscope.flows.rl.evaluate import Shown
from mutoscope.flows.rl.telling import show_picture
from mutoscope.platform.orchestration.engine_run import engine_run
from mutoscope.platform.orchestration.runtime import Runtime, get_runtime
from mutoscope.platform.refs import ArtifactRef
from mutoscope.platform.training import notes
from mutoscope.platform.training.notes import curves_of

MOST_ROWS = 12
"""Prompts on a sheet of samples."""


async def draw_curves(course: Course, iteration: int) -> ArtifactRef | None:
    """The curves up to an iteration as a picture; None while there is nothing to draw."""
    runtime = get_runtime()
    noted, is_new = await asyncio.to_thread(_noted, runtime, course.name, iteration)
    if noted is None:
        return None
    picture = (await engine_run("line-charts", series=noted))["image"]
    if is_new:
        show_picture(f"curves-{course.name}", picture, f"{course.name} until iteration {iteration}")
    return picture


def _noted(runtime: Runtime, name: str, iteration: int) -> tuple[ArtifactRef | None, bool]:
    """The numbers of the curves, and whether they were noted just now."""
    found = runtime.catalog.trainings.notes(name, notes.CURVES, [iteration])
    if found:
        return found[0].artifacts[notes.RECORD], False
    drawn = curves_of(runtime.catalog, runtime.store, name, iteration)
    if not drawn["panels"]:
        return None, False
    used = {
        f"{title}.{note.iteration}": note.artifacts[notes.RECORD]
        for title in (notes.ITERATION, notes.EVALUATION)
        for note in runtime.catalog.trainings.notes(name, title, range(iteration + 1))
    }
    written = records.write(runtime, name, notes.CURVES, iteration, drawn, used=used)
    return written.artifacts[notes.RECORD], True


async def draw_samples(samples: Sequence[Shown], columns: int, judge: str, title: str) -> ArtifactRef | None:
    """A sheet of samples, a row for each prompt with its mean score; of a clip the last frame. None unless
    every sample is there."""
    rows = [samples[at : at + columns] for at in range(0, len(samples), columns)][:MOST_ROWS]
    whole = [one for row in rows for one in row]
    if not whole or any(one.made is None for one in whole):
        return None
    pictures = [await picture_of(one.made) for one in whole if one.made is not None]
    outputs = await engine_run(
        "contact-sheet",
        images=pictures,
        columns=columns,
        column_labels=[f"seed {one.seed}" for one in rows[0]],
        row_labels=[_label(row, judge) for row in rows],
        title=title,
    )
    return outputs["image"]


async def picture_of(made: ArtifactRef, at: int = -1) -> ArtifactRef:
    """A picture as it is, or a frame of a clip."""
    if made.kind == "image":
        return made
    return (await engine_run("video-frame", video=made, at=at))["image"]


def _label(row: Sequence[Shown], judge: str) -> str:
    scores = [value for one in row if (value := one.value(judge)) is not None]
    told = f"{sum(scores) / len(scores):.3f}" if scores else "no score"
    return f"{row[0].ask.prompt} [{told}]"
