"""What a model thinks of recorded samples: velocities at latents, and log-probabilities of tokens.

The steps of a sample are put before the loop that serves the card, so that nothing of a model's sampler is
written twice. Rows of many samples share a call, as steps do in the engine, with gradients wherever the
module asks for them. Prompts and images are encoded once, by the served components; no gradient goes there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from mutoscope.models.common.causal_lm import stacked_log_probs
from mutoscope.platform.engine.capture import Capture
from mutoscope.platform.engine.instance import Instance
from mutoscope.platform.engine.loop import WorkPlan
from mutoscope.platform.engine.recompute import Seeker, check_recorded, conditioned
from mutoscope.platform.engine.request import Profile, Request
from mutoscope.platform.training.batch import Example


@dataclass(slots=True, eq=False)
class Conditions:
    """The slots with which the samplers of examples begin, encoded once each.

    Args:
        steps: of the schedule; None: those that the samples were drawn with.
    """

    served: Instance
    steps: int | None = None
    _known: dict[tuple[Any, ...], Mapping[str, Any]] = field(default_factory=dict)

    def of(self, example: Example) -> Mapping[str, Any]:
        """The slots of an example; those of one group and prompt are shared."""
        key = (example.group, example.sample.prompt, example.sample.image)
        if key not in self._known:
            with torch.no_grad():
                self._known[key] = conditioned(self.served, self._request(example))
        return self._known[key]

    def _request(self, example: Example) -> Request:
        """The request that drew the sample, its prompt as it was drawn: refiners are not asked again."""
        parameters = {**example.record.parameters, "prompt": example.sample.prompt}
        if "refine" in parameters:
            parameters["refine"] = False
        if self.steps is not None:
            parameters |= {"num_inference_steps": self.steps, "law": "ode"}
        images = [slot.name for slot in self.served.card.inputs if slot.kind == "image"]
        inputs = {images[0]: example.image} if images and example.image is not None else {}
        card, seed = self.served.card.id, example.sample.seed
        return Request("train", card, inputs, parameters, seed, Profile.ROLLOUT)


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Where a sampler is put: step `index` of an example's schedule, at latents (1, …), float32."""

    example: Example
    index: int
    latents: Tensor


class FlowPolicy:
    """Velocities of one instance."""

    def __init__(self, instance: Instance, conditions: Conditions) -> None:
        self.instance, self.conditions = instance, conditions

    def capture(self, example: Example, *, recorded: bool = True) -> Capture:
        """The example's schedule and law.

        Raises:
            InvalidParameter: `recorded`, and the record's parameters are not those that it was drawn with.
        """
        capture = self._seeker(example).capture
        if recorded:
            check_recorded(example.facts, capture)
        return capture

    def velocities(self, places: Sequence[Place]) -> list[Tensor]:
        """The velocity (1, …) at each place, float32; differentiable in the instance's weights."""
        taken = [self._taken(place) for place in places]
        results: list[Tensor] = [torch.empty(0)] * len(places)
        for same in _alike([plan for plan, _ in taken]):
            rows = [row for at in same for row in taken[at][1]]
            plan = taken[same[0]][0]
            assert plan.rows is not None
            made = plan.rows.call({name: torch.cat([row[name] for row in rows]) for name in rows[0]})
            parts = iter(made.split(1))
            for at in same:
                own = taken[at][0].rows
                assert own is not None
                results[at] = own.combine([next(parts) for _ in taken[at][1]]).float()
        return results

    def _taken(self, place: Place) -> tuple[WorkPlan, Sequence[Mapping[str, Any]]]:
        """A place's plan and its rows, taken at once: the sampler will be moved."""
        plan = self._seeker(place.example).plan(place.index, place.latents)
        assert plan.rows is not None
        return plan, plan.rows.make()

    def _seeker(self, example: Example) -> Seeker:
        return Seeker.of(self.instance, self.conditions.of(example), example.sample.seed)


def _alike(plans: Sequence[WorkPlan]) -> list[list[int]]:
    """Places of plans that may share a call, together."""
    found: dict[tuple[Any, ...], list[int]] = {}
    for at, plan in enumerate(plans):
        assert plan.rows is not None
        found.setdefault((plan.rows.call, plan.kind, plan.shape), []).append(at)
    return list(found.values())


class TokenPolicy:
    """Log-probabilities of one language model."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def log_probs(self, examples: Sequence[Example]) -> Tensor:
        """log p of every token of the answers, (B, T), 0 behind an answer's end."""
        asked, temperatures = [], []
        for example in examples:
            assert example.tokens is not None
            asked.append((example.tokens["prompt"], example.tokens["answer"]))
            temperatures.append(float(example.tokens["temperature"]))
        return padded(stacked_log_probs(self.model, asked, temperatures))


def padded(rows: Sequence[Tensor]) -> Tensor:
    """Rows of several lengths as one tensor (B, T), filled up with 0."""
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
