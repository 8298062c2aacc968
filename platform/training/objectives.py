"""What a training step asks of the policy: for each method, an update's items and the loss of some of them.

An *item* is what one row of a pass is about: a stochastic step of a sample (flow-grpo), a sample noised to a
level (nft, distill), an answer (token-pg). Losses come one to an item, so that an update may be split over
several passes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from mutoscope.platform import ids
from mutoscope.platform.engine.rollout import draw
from mutoscope.platform.training.batch import Example
from mutoscope.platform.training.policy import Place

_DRAW_DOMAIN = "mutoscope.train-draw/1"


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """One row's worth of an update.

    Attributes:
        place: where the sampler is put; None for an answer.
        target: what the loss compares with: the latents that a step led to, or the finished sample.
        sigma: noise level of the place, and of the target.
        made: 1 where the sampler decides a latent; None: everywhere.
    """

    example: Example
    place: Place | None = None
    target: Tensor | None = None
    sigma: tuple[float, float] = (1.0, 0.0)
    made: Tensor | None = None


@dataclass(slots=True)
class Measured:
    """The loss (B,) of items, and what is known of them by name, a number for each of them that has it.

    `delta_log_p` is |log p − as captured|, and `delta_fresh` the same of samples of the pinned weights alone,
    the mean of an answer's tokens; `ratio`, `clipped`, `rejected` and `kl` are as `methods` define them.
    """

    loss_B: Tensor
    facts: dict[str, list[float]] = field(default_factory=dict)

    def note(self, name: str, values: Tensor) -> None:
        """Add to what is known."""
        self.facts.setdefault(name, []).extend(values.detach().float().flatten().tolist())


class Objective(ABC):
    """One method's.

    Attributes:
        captures: whether what is recomputed equals what was captured, under the weights that sampled.
    """

    captures: ClassVar[bool] = True

    @abstractmethod
    def items(self, examples: Sequence[Example], draws: Draws) -> list[Item]:
        """The items of an update, in a fixed order."""

    @abstractmethod
    def measure(self, items: Sequence[Item]) -> Measured:
        """Loss and facts of some of an update's items."""

    @abstractmethod
    def shift(self, items: Sequence[Item]) -> float:
        """How far the policy has gone from the pinned one: the squared change of its velocity relative to
        the square of that, or the mean change of a token's log-probability."""


@dataclass(frozen=True, slots=True)
class Draws:
    """Where an update's randomness comes from: the run's seed and the number of the update, never a generator
    that goes on, so that a training may be cut anywhere."""

    seed: int
    update: int

    def of(self, *what: str | int) -> torch.Generator:
        """A generator of one use."""
        place = [self.seed, self.update, *what]
        return torch.Generator("cpu").manual_seed(draw(ids.digest(_DRAW_DOMAIN, place)))


def fresh(items: Sequence[Item]) -> Tensor:
    """Bool (B,): whose samples the pinned weights drew."""
    return torch.tensor([item.example.staleness == 0 for item in items])


def advantages_of(items: Sequence[Item]) -> Tensor:
    """Of items, (B,) float32."""
    return torch.tensor([item.example.advantage for item in items], dtype=torch.float32)
