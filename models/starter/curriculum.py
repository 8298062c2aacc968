"""A curriculum: how one starter model is trained, stage after stage.

The command line drives one to its end with ``train``; a trainer card drives it a few steps at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mutoscope.models.starter.stage import Stage, run
from mutoscope.platform.errors import InvalidParameter


@dataclass(frozen=True, slots=True)
class Curriculum:
    """One model's training.

    Attributes:
        recipe: every number of the training that the shipped weights stand for.
        configure: ``(seed, parameters)`` to the recipe with its stages seeded from ``seed`` on and the step
            counts that ``parameters`` sets.
        lengths: steps of each stage by its name, in order, before any stage exists.
        stages: ``(recipe, workdir)`` to the stages in order. Each is made when the one before it is done, on
            which it builds; the last one exports the whole folder.
        shares: how a time budget is divided, by stage name.
        onward: ``(recipe, workdir, folder)`` to the stages that go on from the weights in a folder; None
            where the model has none.
    """

    recipe: Any
    configure: Callable[[int, Mapping[str, Any]], Any]
    lengths: Callable[[Any], Mapping[str, int]]
    stages: Callable[[Any, Path], Iterator[Stage]]
    shares: Mapping[str, float]
    onward: Callable[[Any, Path, Path], Iterator[Stage]] | None = None

    def train(
        self,
        folder: Path,
        workdir: Path,
        *,
        start: Path | None = None,
        minutes: float | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        """Train all stages and write the pipeline folder.

        Every stage leaves a checkpoint in ``workdir``, so a stopped training continues where it was. Without
        ``minutes`` every stage runs the steps of its recipe; with it, the steps that fit.

        Args:
            start: a folder of trained weights to go on from, instead of from nothing.

        Raises:
            InvalidParameter: this model cannot go on from a folder.
        """
        torch.set_num_threads(1)
        for stage in self._stages(workdir, start):
            budget = None if minutes is None else minutes * self.shares[stage.name]
            run(stage, workdir, minutes=budget, say=say)
        stage.export(folder)

    def _stages(self, workdir: Path, start: Path | None) -> Iterator[Stage]:
        if start is None:
            return self.stages(self.recipe, workdir)
        if self.onward is None:
            raise InvalidParameter("start", str(start), "leave it out: this model is trained from nothing")
        return self.onward(self.recipe, workdir, start)
