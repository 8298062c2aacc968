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
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

Metrics = dict[str, float]

PACE_STEPS = 30
"""Steps timed before a budget in minutes becomes a number of steps."""


class Stage(Protocol):
    """One part of a starter model on its way from nothing to a folder of weights."""

    name: str
    total_steps: int
    """Where the learning-rate schedule ends; the runner may set it once, from a time budget."""
    steps_done: int

    @property
    def done(self) -> bool:
        """Whether ``steps_done`` has reached ``total_steps``."""

    def step(self) -> Metrics:
        """Train on one batch and return its figures."""

    def evaluate(self) -> Metrics:
        """Figures on held-out data; cheap enough to be called every few minutes."""

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to continue on the identical curve."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from ``state_dict()`` of an equally configured stage."""

    def export(self, folder: Path) -> None:
        """Write this part in diffusers layout under ``folder``."""


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


def advance(optimisers: Iterable[torch.optim.Optimizer], factor: float) -> None:
    """One update of every optimiser at ``factor`` of its learning rate; gradients are dropped."""
    for optimiser in optimisers:
        set_learning_rate(optimiser, factor)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)


class Average:
    """Exponential moving average of a module's parameters; ``decay`` ramps up so early noise is forgotten."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay = decay
        self.shadow = {k: v.detach().clone() for k, v in module.state_dict().items()}

    @torch.no_grad()
    def update(self, module: nn.Module, step: int) -> None:
        decay = min(self.decay, (1 + step) / (10 + step))
        live = module.state_dict()
        floats = [k for k, v in self.shadow.items() if v.is_floating_point()]
        torch._foreach_lerp_([self.shadow[k] for k in floats], [live[k] for k in floats], 1 - decay)
