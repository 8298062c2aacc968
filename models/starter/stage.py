"""How a starter model is trained: a Stage knows one part's steps, ``run`` drives it and keeps it safe.

A stage draws its data and noise from ``(seed, step)`` alone, so its state is weights, optimiser moments and a
step count; a run stopped anywhere continues on the identical curve.  Checkpoints are replaced atomically and
every logged line is JSON.
"""

from __future__ import annotations

import json
import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

Metrics = dict[str, float]

PACE_STEPS = 30
"""Steps timed before a budget in minutes becomes a number of steps."""


class Stage(ABC):
    """One part of a starter model on its way from nothing to a folder of weights.

    Args:
        steps: where the learning-rate schedule ends; the runner may set ``total_steps`` once, from a time
            budget.
        warmup: steps of linear warm-up.
        trained: the modules that change, by the name their weights have in a checkpoint.
        average: follows every update, if what ships is an average of weights.
    """

    name: ClassVar[str]

    def __init__(
        self,
        steps: int,
        warmup: int,
        trained: Mapping[str, nn.Module],
        optimisers: Sequence[torch.optim.Optimizer],
        average: Average | None = None,
    ) -> None:
        self.total_steps = steps
        self.steps_done = 0
        self._warmup = warmup
        self._trained = trained
        self._optimisers = optimisers
        self._average = average

    @property
    def done(self) -> bool:
        """Whether the schedule has ended."""
        return self.steps_done >= self.total_steps

    @abstractmethod
    def step(self) -> Metrics:
        """Train on one batch and return its figures."""

    @abstractmethod
    def evaluate(self) -> Metrics:
        """Figures on held-out data; cheap enough to be called every few minutes."""

    @abstractmethod
    def export(self, folder: Path) -> None:
        """Write this part in diffusers layout under ``folder``."""

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to continue on the identical curve."""
        return {
            "total_steps": self.total_steps,
            "steps_done": self.steps_done,
            "trained": {name: module.state_dict() for name, module in self._trained.items()},
            "optimisers": [optimiser.state_dict() for optimiser in self._optimisers],
            "average": self._average.shadow if self._average else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from ``state_dict()`` of an equally configured stage."""
        self.total_steps, self.steps_done = state["total_steps"], state["steps_done"]
        for name, module in self._trained.items():
            module.load_state_dict(state["trained"][name])
        for optimiser, saved in zip(self._optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(saved)
        if self._average:
            self._average.shadow = {k: v.clone() for k, v in state["average"].items()}

    def _update(self) -> None:
        """Optimisers move at the schedule's rate and drop their gradients; the average follows."""
        factor = cosine(self.steps_done, self.total_steps, self._warmup)
        for optimiser in self._optimisers:
            set_learning_rate(optimiser, factor)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        self.steps_done += 1
        if self._average:
            self._average.update(self.steps_done)


def run(
    stage: Stage,
    workdir: Path,
    *,
    minutes: float | None = None,
    checkpoint_seconds: float = 300.0,
    evaluate_seconds: float = 600.0,
    say: Callable[[str], None] = print,
) -> None:
    """Drive ``stage`` to its end, resuming from ``workdir/<name>.pt`` when that exists.

    ``minutes`` fixes ``total_steps`` from the pace of the first steps; the number is stored in the
    checkpoint, so a resumed run keeps its schedule.  Figures go to ``workdir/<name>.jsonl``.
    """
    workdir.mkdir(parents=True, exist_ok=True)
    checkpoint, log = workdir / f"{stage.name}.pt", workdir / f"{stage.name}.jsonl"
    if checkpoint.exists():
        load_checkpoint(stage, checkpoint)
        say(f"{stage.name}: resumed at step {stage.steps_done} of {stage.total_steps}")
    elif minutes is not None:
        pace = _pace(stage)
        stage.total_steps = max(stage.steps_done + 1, int(minutes * 60 / pace))
        say(f"{stage.name}: {pace:.3f} s a step, {stage.total_steps} steps in {minutes:g} minutes")
    saved = evaluated = started = time.monotonic()
    while not stage.done:
        metrics = stage.step()
        now = time.monotonic()
        if stage.steps_done % 50 == 0 or stage.done:
            _record(log, stage, metrics, now - started, say)
        if now - evaluated > evaluate_seconds and not stage.done:
            _record(log, stage, stage.evaluate(), now - started, say)
            evaluated = time.monotonic()
        if now - saved > checkpoint_seconds:
            save_checkpoint(stage, checkpoint)
            saved = now
    save_checkpoint(stage, checkpoint)
    _record(log, stage, stage.evaluate(), time.monotonic() - started, say)


def _pace(stage: Stage) -> float:
    """Seconds a step takes, leaving out the first ones, which warm caches."""
    warm = PACE_STEPS // 3
    for _ in range(warm):
        stage.step()
    begun = time.monotonic()
    for _ in range(PACE_STEPS - warm):
        stage.step()
    return (time.monotonic() - begun) / (PACE_STEPS - warm)


def save_checkpoint(stage: Stage, path: Path) -> None:
    """Replace ``path`` by the stage's state; a crash leaves the old file or the new one, never a mixture."""
    partial = path.with_suffix(".partial")
    torch.save(stage.state_dict(), partial)
    os.replace(partial, path)


def load_checkpoint(stage: Stage, path: Path) -> None:
    """Continue ``stage`` where the file left it; a stage without one starts from nothing."""
    if path.exists():
        stage.load_state_dict(torch.load(path, weights_only=True))


def steps_in(path: Path) -> int:
    """Steps that a checkpoint covers; none without the file."""
    return int(torch.load(path, weights_only=True)["steps_done"]) if path.exists() else 0


def _record(log: Path, stage: Stage, metrics: Metrics, seconds: float, say: Callable[[str], None]) -> None:
    line = {"step": stage.steps_done, "seconds": round(seconds, 1), **metrics}
    with log.open("a") as stream:
        stream.write(json.dumps(line) + "\n")
    say(f"{stage.name} " + " ".join(f"{k}={v:.4g}" for k, v in line.items()))


def seed_for(seed: int, step: int, lane: int = 0) -> int:
    """A 63-bit seed for torch that is well mixed in all three numbers (splitmix64 finaliser)."""
    value = (seed * 0x9E3779B97F4A7C15 + step * 0xBF58476D1CE4E5B9 + lane * 0x94D049BB133111EB) % 2**64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) % 2**64
    return (value ^ (value >> 31)) >> 1


def cosine(step: int, total: int, warmup: int, floor: float = 0.0) -> float:
    """Learning-rate factor: linear warm-up, then half a cosine down to ``floor`` at ``total``."""
    if step < warmup:
        return (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, total - warmup))
    return floor + (1.0 - floor) * 0.5 * (1.0 + math.cos(math.pi * progress))


def set_learning_rate(optimiser: torch.optim.Optimizer, factor: float) -> None:
    """Scale every group to ``factor`` times the rate it was built with (kept in ``base_lr``)."""
    for group in optimiser.param_groups:
        group["lr"] = group.setdefault("base_lr", group["lr"]) * factor


class Average:
    """Exponential moving average of a module's parameters; ``decay`` ramps up so early noise is forgotten."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.module, self.decay = module, decay
        self.shadow = {k: v.detach().clone() for k, v in module.state_dict().items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        decay = min(self.decay, (1 + step) / (10 + step))
        live = self.module.state_dict()
        floats = [k for k, v in self.shadow.items() if v.is_floating_point()]
        torch._foreach_lerp_([self.shadow[k] for k in floats], [live[k] for k in floats], 1 - decay)
