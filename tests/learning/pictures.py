"""A result for the eye: every training's curve among the controls', and samples before and after."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from mutoscope.models.media.chart import drawn as chart
from mutoscope.models.media.layout import Content, Pixels, fitted
from mutoscope.models.media.sheet import drawn as sheet
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.refs import ArtifactRef
from tests.learning import experts, films
from tests.learning.evidence import UPDATES

JUDGE = "scene-check"

MOST_PROMPTS, MOST_SEEDS = 10, 3
CELL = 96
"""Pixels of a picture's side."""

Told = Mapping[str, Any]


def curves(result: Told, path: Path) -> None:
    """Scores and rewards by iteration, a line for each training."""
    panels = [
        _panel(f"{JUDGE}, trained prompts", result, lambda t: _scores(t, "scores")),
        _panel(f"{JUDGE}, held-out prompts", result, lambda t: _scores(t, "held_out")),
        _panel("reward of the rollouts", result, lambda t: _rollouts(t, "reward")),
        _panel("reward of unrefined rollouts", result, lambda t: _rollouts(t, "unrefined")),
        _panel("refinements of the wanted scene", result, lambda t: _rollouts(t, "favoured")),
        _panel("probability of the wanted scene", result, _wanted),
        *(
            _panel(f"probability of the wanted scene: {who}", result, lambda t, at=at: _expert(t, at))
            for at, who in experts.TOLD.items()
        ),
        *(
            _panel(f"reward of the rollouts: {half}", result, lambda t, half=half: _rollouts(t, half))
            for half in films.HALVES
        ),
    ]
    shown = [panel for panel in panels if any(panel["lines"].values())]
    if shown:
        series = {"title": result["recipe"], "panels": shown}
        Image.fromarray(chart(series, 2, 640, 320)).save(path, optimize=True)


def _panel(title: str, result: Told, points: Callable[[Told], list[list[Any]]]) -> dict[str, Any]:
    lines = {
        f"{training['variant']} {training['seed']}": points(training) for training in result["trainings"]
    }
    return {"title": title, "lines": {name: line for name, line in lines.items() if line}, "marks": []}


def _scores(training: Told, which: str) -> list[list[Any]]:
    found = training["evaluations"]
    return [[one["iteration"], one[which][JUDGE]] for one in found if one[which] and JUDGE in one[which]]


def _wanted(training: Told) -> list[list[Any]]:
    found = training["evaluations"]
    return [[one["iteration"], one["refinement"]["mean"]] for one in found if "refinement" in one]


def _expert(training: Told, name: str) -> list[list[Any]]:
    found = training["evaluations"]
    return [[one["iteration"], one["experts"][name]] for one in found if "experts" in one]


def _rollouts(training: Told, what: str) -> list[list[Any]]:
    found = training["iterations"]
    return [[one["iteration"], one[what]] for one in found if one.get(what) is not None]


def samples(runtime: Runtime, result: Told, path: Path) -> None:
    """The first training's samples of fixed prompts and seeds: left before it, right after it."""
    training = next((one for one in result["trainings"] if one["variant"] == UPDATES), None)
    if training is None or len(training["evaluations"]) < 2:
        return
    before, after = (_by_prompt(training["evaluations"][at]["samples"]) for at in (0, -1))
    prompts = [prompt for prompt in before if prompt in after][:MOST_PROMPTS]
    seeds = [one["seed"] for one in before[prompts[0]]][:MOST_SEEDS]
    cells = [one for prompt in prompts for side in (before, after) for one in side[prompt][: len(seeds)]]
    content = Content(
        [_picture(runtime, one["made"]) for one in cells],
        2 * len(seeds),
        f"{training['name']}: before (left) and after {training['evaluations'][-1]['iteration']} iterations",
        [f"{side} {seed}" for side in ("before", "after") for seed in seeds],
        [f"{prompt} [{_mean(before[prompt])} > {_mean(after[prompt])}]" for prompt in prompts],
    )
    Image.fromarray(sheet(content)).save(path, optimize=True)


def _by_prompt(told: Sequence[Told]) -> dict[str, list[Told]]:
    found: dict[str, list[Told]] = {}
    for one in told:
        if one["made"] is not None:
            found.setdefault(one["prompt"], []).append(one)
    return found


def _mean(told: Sequence[Told]) -> str:
    scores = [one["scores"][JUDGE]["score"] for one in told]
    known = [score for score in scores if score is not None]
    return f"{sum(known) / len(known):.2f}" if known else "no score"


def _picture(runtime: Runtime, made: str) -> Pixels:
    strip = films.strip(runtime, made)
    if strip is not None:
        return strip
    ref: ArtifactRef = runtime.catalog.artifacts.resolve(made)
    path = runtime.store.local_path(ref.digest)
    return fitted(np.asarray(Image.open(path).convert("RGB")), CELL)
