"""The loop of a training: rollouts at its head, a step of each component that learns, versions, evaluations.

Everything is runs and notes, and all that is drawn comes from the training's seed. So a training that was
killed, wherever that was, is started again under its name: what it noted is read, what it had computed since
is in the memo, and the rest comes out as it would have.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mutoscope.flows.rl import records
from mutoscope.flows.rl.batches import Batch, gather
from mutoscope.flows.rl.checking import Inspector
from mutoscope.flows.rl.configuration import TrainingConfiguration
from mutoscope.flows.rl.course import Course, Part, Standing, begin
from mutoscope.flows.rl.drawing import draw_curves
from mutoscope.flows.rl.telling import show_table
from mutoscope.platform.catalog import WeightVersion
from mutoscope.platform.errors import RunFailed, TrainingHalted
from mutoscope.platform.orchestration.engine_run import engine_run
from mutoscope.platform.orchestration.fan_out import for_each
from mutoscope.platform.orchestration.patience import Patience
from mutoscope.platform.orchestration.runtime import Runtime, get_runtime
from mutoscope.platform.refs import TRAINER_SUFFIX, ArtifactRef
from mutoscope.platform.training import notes

FORMAT = "mutoscope.training-iteration/1"


@dataclass(frozen=True, slots=True)
class Trained:
    """A training that came to its end.

    Attributes:
        heads: the newest version of everything that was trained, by card/component.
        best: the version that evaluations liked best, likewise; empty without evaluations.
        curves: the picture of its curves.
    """

    name: str
    iterations: int
    heads: Mapping[str, str]
    best: Mapping[str, str]
    curves: ArtifactRef | None


@dataclass(frozen=True, slots=True)
class _Step:
    """What a trainer made of a component, and the run that did."""

    part: Part
    outputs: Mapping[str, ArtifactRef]
    run_id: str
    metrics: Mapping[str, Any]


async def train(name: str, configuration: TrainingConfiguration) -> Trained:
    """Train, or go on training.

    Raises:
        InvalidInput: the configuration cannot be used, or is not the one that the name was set up with.
        TrainingHalted: a sentinel or a diverged step stopped it; the head is the last good version.
    """
    runtime = get_runtime()
    course = await _ask(runtime, begin, runtime, name, configuration)
    inspector = Inspector(course)
    standing = course.beginning
    fresh = await _ask(runtime, records.read, runtime, name, notes.ITERATION, 0) is None
    for iteration in range(configuration.iterations):
        await inspector.look(iteration, standing.heads)
        noted = await _ask(runtime, records.read, runtime, name, notes.ITERATION, iteration)
        if noted is None:
            noted = await _advance(runtime, course, iteration, standing, whole=fresh)
            fresh = True
        standing = await _ask(runtime, _standing, runtime, noted)
    await inspector.look(configuration.iterations, standing.heads)
    curves = await draw_curves(course, configuration.iterations)
    return Trained(
        name,
        configuration.iterations,
        {"/".join(part): str(version) for part, version in standing.heads.items()},
        inspector.best,
        curves,
    )


async def _advance(
    runtime: Runtime, course: Course, iteration: int, standing: Standing, *, whole: bool
) -> Mapping[str, Any]:
    """One iteration, and its record.

    Args:
        whole: nothing of it was computed before, so that its time says how long it takes.
    """
    started = time.monotonic()
    batch = await gather(course, iteration, standing.heads)
    collected = time.monotonic()
    steps = await _train(course, iteration, standing, batch)
    trained = time.monotonic()
    moved = await _ask(runtime, _publish, runtime, course, iteration, standing, steps)
    published = time.monotonic()
    record = _record(course, iteration, standing, batch, steps, moved)
    used = records.numbered("rollouts", batch.rollouts) | {
        f"metrics:{'/'.join(step.part)}": step.outputs["metrics"] for step in steps
    }
    await _ask(runtime, records.write, runtime, course.name, notes.ITERATION, iteration, record, used=used)
    seconds = {
        "collect": collected - started,
        "train": trained - collected,
        "publish": published - trained,
        "samples": batch.samples,
        "whole": whole,
    }
    await _ask(runtime, _note_timing, runtime, course.name, iteration, seconds)
    _tell(runtime, course, iteration)
    return record


async def _train(course: Course, iteration: int, standing: Standing, batch: Batch) -> list[_Step]:
    """A step of every component that has something to learn from.

    Raises:
        TrainingHalted: one of them failed; nothing of the iteration is published.
    """
    runtime = get_runtime()

    async def step(part: Part) -> _Step | None:
        card, component = part
        inputs = batch.inputs(card)
        if not inputs:
            return None
        settings = course.configuration.stage(card).parameters_of(component)
        given: dict[str, Any] = {**settings.model_dump(exclude_unset=True), **inputs}
        given |= batch.staleness(part, standing.heads[part])
        if settings.kl_beta:
            given["reference"] = _ref(runtime, course.base[card][component].digest)
        if part in standing.states:
            given["state"] = _ref(runtime, standing.states[part])
        outputs = await engine_run(
            f"{card}{TRAINER_SUFFIX}",
            seed=course.step_seed(iteration, part),
            weights=course.weights(card, standing.heads),
            **given,
        )
        return await asyncio.to_thread(_made, runtime, part, outputs)

    try:
        made = await for_each(
            course.configuration.trained, step, at_most=max(1, len(course.configuration.trained))
        )
    except TrainingHalted:
        raise
    except RunFailed as error:
        heads = ", ".join(str(version) for version in standing.heads.values())
        raise TrainingHalted(
            f"training {course.name} halted at iteration {iteration}: {error}; its head stays {heads}"
        ) from error
    return [one for one in made if one is not None]


def _made(runtime: Runtime, part: Part, outputs: Mapping[str, ArtifactRef]) -> _Step:
    """A step's outputs with the run that made them: equal bytes may have several makers."""
    runs = runtime.catalog.runs
    makers = [{run.id for run in runs.generated_by(outputs[slot].digest)} for slot in ("weights", "metrics")]
    metrics = json.loads(runtime.store.get(outputs["metrics"].digest))
    return _Step(part, outputs, min(set.intersection(*makers)), metrics)


def _publish(
    runtime: Runtime, course: Course, iteration: int, standing: Standing, steps: list[_Step]
) -> dict[Part, WeightVersion]:
    """The version that each step made."""
    moved: dict[Part, WeightVersion] = {}
    for step in steps:
        card, component = step.part
        moved[step.part] = runtime.catalog.trainings.publish_step(
            card,
            component,
            step.outputs["weights"].digest,
            step.run_id,
            standing.heads[step.part],
            alias=course.name,
            metrics={"training": course.name, "iteration": iteration, **_whole(step.metrics)},
        )
    return moved


def _record(
    course: Course,
    iteration: int,
    standing: Standing,
    batch: Batch,
    steps: list[_Step],
    moved: Mapping[Part, WeightVersion],
) -> dict[str, Any]:
    """What an iteration was: no time and no place in it, so that it is the same wherever it is computed."""
    states = {step.part: step.outputs["state"].digest for step in steps}
    return {
        "format": FORMAT,
        "training": course.name,
        "iteration": iteration,
        "rollouts": batch.told(),
        "rewards": _rewards(batch),
        "heads": {
            "/".join(part): {
                "from": str(version),
                "version": str(moved.get(part, version)),
                "digest": moved.get(part, version).digest,
                "state": states.get(part, standing.states.get(part)),
            }
            for part, version in standing.heads.items()
        },
        "metrics": {"/".join(step.part): _whole(step.metrics) for step in steps},
    }


def _rewards(batch: Batch) -> dict[str, Any]:
    """The scores of all samples of an iteration, on the whole."""
    scores = batch.scores
    return {
        "samples": batch.samples,
        "scored": len(scores),
        "mean": statistics.fmean(scores) if scores else None,
        "std": statistics.pstdev(scores) if scores else None,
        "least": min(scores, default=None),
        "most": max(scores, default=None),
    }


def _whole(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """A trainer's metrics without its curve, which its own artifact keeps."""
    return {name: value for name, value in metrics.items() if isinstance(value, int | float | str | None)}


def _standing(runtime: Runtime, record: Mapping[str, Any]) -> Standing:
    """How far a training had come after an iteration that is on record."""
    heads: dict[Part, WeightVersion] = {}
    states: dict[Part, str] = {}
    for name, told in record["heads"].items():
        card, _, component = name.partition("/")
        heads[card, component] = runtime.catalog.weights.get(told["version"])
        if told["state"] is not None:
            states[card, component] = told["state"]
    return Standing(heads, states)


def _note_timing(runtime: Runtime, name: str, iteration: int, seconds: Mapping[str, Any]) -> None:
    """What was measured first stays."""
    if records.read(runtime, name, notes.TIMING, iteration) is None:
        records.write(runtime, name, notes.TIMING, iteration, seconds)


def _ref(runtime: Runtime, digest: str) -> ArtifactRef:
    ref = runtime.catalog.artifacts.get(digest)
    assert ref is not None, "what a version or a state is, is in the catalog"
    return ref


def _tell(runtime: Runtime, course: Course, iteration: int) -> None:
    """The last iterations on the flow run's page."""
    rows = [
        (number, record["rewards"]["mean"], record["rewards"]["scored"], _heads(record))
        for number, record in records.read_all(
            runtime, course.name, notes.ITERATION, range(max(0, iteration - 19), iteration + 1)
        ).items()
    ]
    show_table(f"training-{course.name}", course.name, ("iteration", "reward", "scored", "head"), rows)


def _heads(record: Mapping[str, Any]) -> str:
    return ", ".join(told["version"] for told in record["heads"].values())


async def _ask(runtime: Runtime, call: Any, *given: Any, **named: Any) -> Any:
    """The catalog's answer, waited for as long as the settings say."""
    return await Patience(runtime.settings.catalog_patience_seconds).ask(call, *given, **named)
