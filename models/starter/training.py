"""The program of a trainer: one loop over the stages of a model, a few optimiser steps to a work plan.

The engine interleaves these plans with other requests, and a cancelled training stops between two of them.
Optimisers update in place, so here a plan's thunk does change the loop's state; the state is still the
request's own, and a plan is never run twice.

Each stage is checkpointed under ``HOME/training/<run id>``: when a worker dies, whoever takes the run again
continues on the same curve.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from mutoscope.models.registry import get_card
from mutoscope.models.starter import image_train, refiner_train, scorer_train, video_train
from mutoscope.models.starter.curriculum import Curriculum
from mutoscope.models.starter.stage import Stage, load_checkpoint, save_checkpoint, steps_in
from mutoscope.models.starter.trainers import (
    IMAGE_TRAINER,
    REFINER_TRAINER,
    SCORER_TRAINER,
    TRAINED,
    VIDEO_TRAINER,
)
from mutoscope.platform.engine.card import Card
from mutoscope.platform.engine.loop import BuildContext, Done, LoopNode, LoopState, Program, WorkPlan
from mutoscope.platform.engine.request import Output, Request
from mutoscope.platform.settings import get_settings

STEPS_PER_PLAN = 4
CHECKPOINT_SECONDS = 120.0


@dataclass(slots=True, kw_only=True)
class TrainState(LoopState):
    """A training under way."""

    workdir: Path
    stages: Iterator[Stage]
    stage: Stage | None = None
    saved: float = field(default_factory=time.monotonic)


class Train:
    """Drives the stages; the last one exports the whole folder."""

    name = "train"

    def __init__(self, card: Card, curriculum: Curriculum) -> None:
        self.card, self.curriculum = card, curriculum

    def total(self, slots: Mapping[str, Any]) -> int:
        """Plans left to do: all of them, less what checkpoints of an earlier attempt cover."""
        workdir = _workdir(slots["request"])
        lengths = self.curriculum.lengths(self._recipe(slots["request"]))
        left = {name: length - steps_in(workdir / f"{name}.pt") for name, length in lengths.items()}
        export = 1
        return export + sum(-(-steps // STEPS_PER_PLAN) for steps in left.values())

    def init(self, slots: Mapping[str, Any]) -> TrainState:
        """Nothing is built yet: a plan does that, where gradients may flow."""
        request: Request = slots["request"]
        workdir = _workdir(request)
        workdir.mkdir(parents=True, exist_ok=True)
        return TrainState(workdir=workdir, stages=self.curriculum.stages(self._recipe(request), workdir))

    def next(self, state: TrainState) -> WorkPlan | Done:
        """The next few steps, until the last stage has written the folder."""
        if (state.workdir / "folder").is_dir():
            return Done()
        return WorkPlan("train_step", (self.card.id,), partial(_work, state))

    def advance(self, state: TrainState, result: Any) -> None:
        """Count the plan."""
        state.step += 1

    def finalize(self, state: TrainState) -> dict[str, Any]:
        """The folder's files by component; the work folder has served its purpose."""
        summary = get_card(TRAINED[self.card.id]).inspect(state.workdir / "folder")
        files = {
            name: {
                place.relative_to(summary.root(name)).as_posix(): place.read_bytes()
                for place in (summary.folder / path for path in paths)
            }
            for name, paths in summary.components.items()
        }
        recipe = summary.recipe.model_dump(mode="json")
        shutil.rmtree(state.workdir)
        return {"components": files, "recipe": recipe}

    def _recipe(self, request: Request) -> Any:
        return self.curriculum.configure(request.seed, request.parameters)


def _work(state: TrainState) -> None:
    """A few steps of the current stage; once there is none left, the folder."""
    with torch.inference_mode(False), torch.enable_grad():
        stage = _unfinished(state)
        if stage is None:
            _export(state)
            return
        for _ in range(STEPS_PER_PLAN):
            if not stage.done:
                stage.step()
        if stage.done or time.monotonic() - state.saved > CHECKPOINT_SECONDS:
            save_checkpoint(stage, state.workdir / f"{stage.name}.pt")
            state.saved = time.monotonic()


def _unfinished(state: TrainState) -> Stage | None:
    """The first stage with work left, resumed where a checkpoint says; None after the last.

    Finished stages are restored on the way, because later ones build on them.
    """
    while state.stage is None or state.stage.done:
        following = next(state.stages, None)
        if following is None:
            return None
        load_checkpoint(following, state.workdir / f"{following.name}.pt")
        state.stage = following
    return state.stage


def _export(state: TrainState) -> None:
    """The last stage writes the whole folder, which appears complete or not at all."""
    assert state.stage is not None
    unfinished = state.workdir / "unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    state.stage.export(unfinished)
    unfinished.rename(state.workdir / "folder")


def _workdir(request: Request) -> Path:
    return get_settings().home / "training" / request.id


def _program(card: Card, curriculum: Curriculum) -> Program:
    train = Train(card, curriculum)

    def outputs(slots: Mapping[str, Any]) -> dict[str, Output]:
        made = {name: Output("weights", files) for name, files in slots["components"].items()}
        return {**made, "recipe": Output("json", slots["recipe"], {"component": "recipe"})}

    return Program((LoopNode(train, train.total),), outputs)


def build_image(context: BuildContext) -> Program:
    """Builder of `starter-image-trainer`."""
    return _program(IMAGE_TRAINER, image_train.CURRICULUM)


def build_video(context: BuildContext) -> Program:
    """Builder of `starter-video-trainer`."""
    return _program(VIDEO_TRAINER, video_train.CURRICULUM)


def build_scorer(context: BuildContext) -> Program:
    """Builder of `starter-scorer-trainer`."""
    return _program(SCORER_TRAINER, scorer_train.CURRICULUM)


def build_refiner(context: BuildContext) -> Program:
    """Builder of `starter-refiner-trainer`."""
    return _program(REFINER_TRAINER, refiner_train.CURRICULUM)
