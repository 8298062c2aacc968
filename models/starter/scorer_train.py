"""Training the scene scorer from nothing: one stage, a quarter of an hour on one core."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from mutoscope.models.reward.scene.net import Answers, SceneScorer
from mutoscope.models.starter.curriculum import Curriculum
from mutoscope.models.starter.grammar import BACKGROUNDS, COLOURS, SHAPES
from mutoscope.models.starter.scorer_data import Batch, draw
from mutoscope.models.starter.stage import Average, Metrics, Stage, seed_for

PRESENT_WEIGHT = 4.0
"""What a colour that is in the picture counts in the loss; most colours are in no given picture."""


@dataclass(frozen=True)
class SceneTraining:
    """Every number that decides the scorer's weights."""

    seed: int = 31
    batch: int = 48
    steps: int = 2000
    learning_rate: float = 2.5e-3
    weight_decay: float = 1e-3
    warmup: int = 50
    decay: float = 0.995
    """Of the average of weights that ships."""


class SceneStage(Stage):
    """Learns the shares that `scene_data` labels its pictures with."""

    name = "reward_scene"

    def __init__(self, recipe: SceneTraining) -> None:
        torch.manual_seed(recipe.seed)
        self.scorer = SceneScorer(COLOURS, SHAPES, BACKGROUNDS)
        self.recipe = recipe
        optimiser = torch.optim.AdamW(
            self.scorer.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay
        )
        average = Average(self.scorer, recipe.decay)
        super().__init__(recipe.steps, recipe.warmup, {"scorer": self.scorer}, [optimiser], average)

    def step(self) -> Metrics:
        """One batch, drawn from the seed and the step alone."""
        batch = draw(np.random.default_rng(seed_for(self.recipe.seed, self.steps_done)), self.recipe.batch)
        parts = losses(self.scorer.answer(batch.pixels_B3HW), batch)
        torch.stack(list(parts.values())).sum().backward()
        self._update()
        return {name: float(value.detach()) for name, value in parts.items()}

    @torch.no_grad()
    def evaluate(self) -> Metrics:
        """The losses of the averaged weights on pictures of another seed."""
        batch = draw(np.random.default_rng(seed_for(self.recipe.seed, 0, lane=1)), 256)
        parts = losses(self.averaged().answer(batch.pixels_B3HW), batch)
        return {f"held_{name}": float(value.detach()) for name, value in parts.items()}

    def export(self, folder: Path) -> None:
        """Write the card's folder."""
        self.averaged().save_pretrained(folder / "scorer")
        index = {"_class_name": "SceneReward", "scorer": [SceneScorer.__module__, SceneScorer.__name__]}
        (folder / "model_index.json").write_text(json.dumps(index, indent=2) + "\n")

    def averaged(self) -> SceneScorer:
        """A scorer with the averaged weights."""
        assert self._average is not None
        scorer = SceneScorer(COLOURS, SHAPES, BACKGROUNDS)
        scorer.load_state_dict(self._average.shadow)
        return scorer.eval()


def losses(answers: Answers, batch: Batch) -> dict[str, Tensor]:
    """Cross-entropies between the answers and the true shares."""
    present_BC = 1 - batch.shape_BCS[..., -1]
    shape_BC = functional.cross_entropy(
        answers.shape_BCS.flatten(0, 1), batch.shape_BCS.flatten(0, 1), reduction="none"
    ).view_as(present_BC)
    weight_BC = 1 + (PRESENT_WEIGHT - 1) * present_BC
    return {
        "ink": functional.cross_entropy(answers.ink_BCHW, batch.ink_BCHW),
        "shape": (weight_BC * shape_BC).sum() / weight_BC.sum(),
        "ground": functional.cross_entropy(answers.ground_BG, batch.ground_BG),
        "count": functional.cross_entropy(answers.count_BN, batch.count_BN),
    }


def configure(seed: int, parameters: Mapping[str, Any]) -> SceneTraining:
    """The training seeded from `seed`, with the step count that `parameters` sets."""
    recipe = SceneTraining()
    return replace(recipe, seed=seed, steps=parameters["scorer_steps"] or recipe.steps)


def stages(recipe: SceneTraining, workdir: Path) -> Iterator[Stage]:
    """The one stage."""
    yield SceneStage(recipe)


CURRICULUM = Curriculum(
    recipe=SceneTraining(),
    configure=configure,
    lengths=lambda recipe: {SceneStage.name: recipe.steps},
    stages=stages,
    shares={SceneStage.name: 1.0},
)
