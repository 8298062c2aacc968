"""One training step from its first pass to its outputs, as work that is done a little at a time.

`Training.work` is a generator: what lies between two of its yields is one work plan, so that a training takes
turns with what is served. It changes nothing but its own copies. What decides the result is the request
alone: the pinned weights, the rollouts, the state, the parameters and the seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mutoscope.platform.engine.finite import all_finite
from mutoscope.platform.engine.request import Output
from mutoscope.platform.errors import RunFailed, TrainingDiverged
from mutoscope.platform.training import metrics
from mutoscope.platform.training.batch import Batch, Example
from mutoscope.platform.training.learner import Learner
from mutoscope.platform.training.metrics import Update
from mutoscope.platform.training.objectives import Draws, Item, Objective
from mutoscope.platform.training.optimiser import norm_of, shorten

CAPTURE_TOLERANCE = 1e-5
"""|Δlog p| of a sample under the weights that drew it (C2)."""


@dataclass(slots=True, kw_only=True, eq=False)
class Training:
    """A step under way.

    Attributes:
        updates: the examples of each optimiser step, in turn.
        curve: what each of them came to.
        in_row: gradients in a row that were not finite.
    """

    learner: Learner
    objective: Objective
    batch: Batch
    updates: Sequence[Sequence[Example]]
    parameters: Mapping[str, Any]
    seed: int
    curve: list[dict[str, Any]] = field(default_factory=list)
    in_row: int = 0
    shift: float | None = None

    def work(self) -> Iterator[bool]:
        """Do the step, a work plan at a time; True after the last.

        Raises:
            TrainingDiverged: gradients or policy went astray; there are no weights to publish.
            RunFailed: the rollout's own weights do not give its captured log-probabilities.
        """
        last: Sequence[Item] = ()
        for examples in self.updates:
            update = Update()
            # The number of all updates so far, taken or skipped, so that a cut training draws the same.
            draws = Draws(self.seed, self.learner.updates)
            items = self.objective.items(examples, draws)
            chunks = [items[at : at + self._rows] for at in range(0, len(items), self._rows)]
            for at, chunk in enumerate(chunks):
                self._accumulate(update, chunk, len(items))
                if at == len(chunks) - 1:
                    self._apply(update)
                yield False
            last = chunks[-1]
        self._judge(last)
        self.learner.epochs += self.parameters["epochs"]
        yield True

    def outputs(self) -> dict[str, Output]:
        """The card's outputs, of a step that is done."""
        told = {
            "format": metrics.FORMAT,
            "component": self.learner.component,
            "method": self.parameters["method"],
            "learning_rate": self.parameters["learning_rate"],
            "step": self.learner.optimiser.steps,
            **self.batch.summary(),
            **metrics.summary(self.curve),
            "policy_shift": self.shift,
            "curve": self.curve,
        }
        return {**self.learner.outputs(), "metrics": Output("json", told)}

    @property
    def _rows(self) -> int:
        return int(self.parameters["rows"])

    def _accumulate(self, update: Update, items: Sequence[Item], of: int) -> None:
        """The gradient of some items' share of an update."""
        measured = self.objective.measure(items)
        loss = measured.loss_B.sum() / of
        if self.objective.captures and not self.learner.moved:
            self._check_capture(measured.facts.pop("delta_fresh"))
        measured.facts.pop("delta_fresh", None)
        update.add(float(loss.detach()), measured.facts)
        loss.backward()

    def _check_capture(self, deltas: Sequence[float]) -> None:
        worst = max(deltas, default=0.0)
        if not worst < CAPTURE_TOLERANCE:
            raise RunFailed(
                f"log-probabilities recomputed under the weights that sampled differ from the captured ones "
                f"by {worst:.2g}, {CAPTURE_TOLERANCE:g} is allowed: were the rollouts altered, or made by "
                "other code?"
            )

    def _apply(self, update: Update) -> None:
        """Move the leaves, unless the gradient is not finite."""
        trainable = self.learner.trainable
        gradients = trainable.gradients
        update.grad_norm = norm_of(gradients.values())
        update.skipped = not (math.isfinite(update.grad_norm) and math.isfinite(update.loss))
        self.curve.append(update.told())
        if update.skipped:
            self.in_row += 1
            self._check_skips()
        else:
            self.in_row = 0
            shorten(gradients.values(), update.grad_norm, self.parameters["max_grad_norm"])
        self.learner.step(skip=update.skipped)

    def _check_skips(self) -> None:
        if self.in_row >= self.parameters["max_skips"]:
            raise TrainingDiverged(
                f"{self.in_row} gradients in a row are not finite at learning_rate "
                f"{self.parameters['learning_rate']:g}: lower it; nothing was published"
            )

    def _judge(self, items: Sequence[Item]) -> None:
        """Look at where the policy has gone, by the items of the last pass, before anybody is given it."""
        if not self.learner.moved or not items:
            return
        self.shift = self.objective.shift(items)
        sound = all(all_finite(leaf) for leaf in self.learner.trainable.leaves.values())
        if not (sound and self.shift <= self.parameters["max_shift"]):
            rate, limit = self.parameters["learning_rate"], self.parameters["max_shift"]
            raise TrainingDiverged(
                f"the policy moved by {self.shift:.3g} in one step, {limit:g} is allowed, at learning_rate "
                f"{rate:g}: lower it; nothing was published"
            )
