"""The samples of a training step: what the records say of them, and what they captured.

Nothing is computed with a model here. What does not belong to the card, to the pinned weights or to its own
record is refused before any work is done, in a line that names the rollout. No torch.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.training.advantages import group_advantages
from mutoscope.platform.training.groups import LEAST_SCORED, RolloutRecord, Sample, offsets
from mutoscope.platform.training.methods.credit import Leaf, credit
from mutoscope.platform.trajectory import TrajectoryFacts, TrajectoryGroup, TrajectorySample


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """A sample that has something to teach.

    Attributes:
        group: place of its record among the rollouts.
        advantage: of what the trained component made of it.
        staleness: training steps that its weights lie behind the pinned ones.
        trajectory, row: the group that captured it, and which of its samples it is; None for tokens.
        tokens: what the component read and wrote; None for latents.
        image: the picture it began with.
    """

    group: int
    record: RolloutRecord
    sample: Sample
    advantage: float
    staleness: int
    trajectory: TrajectoryGroup | None = None
    row: int = 0
    tokens: Mapping[str, Any] | None = None
    image: Any = None

    @property
    def captured(self) -> TrajectorySample:
        """Its latents and log-probabilities."""
        assert self.trajectory is not None
        return self.trajectory.samples[self.row]

    @property
    def facts(self) -> TrajectoryFacts:
        """How its trajectory was drawn."""
        assert self.trajectory is not None
        return self.trajectory.facts


@dataclass(frozen=True, slots=True)
class Batch:
    """The examples of a step and what became of the rest.

    Attributes:
        scores: of every sample that has one, in the groups that were kept.
        groups: records given. dropped_groups: those without anything to compare, by their own account.
        zero_std_groups: groups, or sets of siblings, of equal scores.
        staleness: by record.
    """

    examples: tuple[Example, ...]
    scores: tuple[float, ...]
    groups: int
    dropped_groups: int
    zero_std_groups: int
    staleness: tuple[int, ...]

    def summary(self) -> dict[str, Any]:
        """The part of a step's metrics that is known beforehand."""
        return {
            "samples": len(self.scores),
            "examples": len(self.examples),
            "groups": self.groups,
            "dropped_groups": self.dropped_groups,
            "zero_std_groups": self.zero_std_groups,
            "reward_mean": statistics.fmean(self.scores) if self.scores else None,
            "reward_std": statistics.pstdev(self.scores) if self.scores else None,
            "staleness_max": max(self.staleness, default=0),
            "staleness_mean": statistics.fmean(self.staleness) if self.staleness else 0.0,
        }


@dataclass(frozen=True, slots=True)
class Gathering:
    """How a batch is put together.

    Attributes:
        card: id of the trained card. component: which is trained.
        experts: the components that a sample goes through, in order.
        parameters: the step's, as `TrainParameters` resolves them.
        weights: digests that the step pins; None while they are not known.
        lists: what the records' files are, by slot.
    """

    card: str
    component: str
    experts: Sequence[str]
    parameters: Mapping[str, Any]
    weights: Mapping[str, str] | None
    lists: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def batch(self, rollouts: Sequence[Any]) -> Batch:
        """The batch of recorded groups.

        Raises:
            InvalidParameter: a rollout that cannot teach this component of these weights.
        """
        records = [RolloutRecord.from_json(value) for value in rollouts]
        staleness = self._staleness(records)
        for place, record in enumerate(records):
            self._check(f"rollouts.{place}", record, staleness[place])
        kept = [place for place, record in enumerate(records) if self._teaches(record)]
        if not kept:
            reason = next((record.reason for record in records if record.reason), "nobody has a score")
            raise InvalidParameter(
                "rollouts", len(records), f"none of these groups can teach anything: {reason}"
            )
        advantages, silent = self._advantages([records[place] for place in kept])
        begins = offsets(records)
        examples = [
            self._example(place, records[place], index, value, staleness[place], begins[place])
            for place, values in zip(kept, advantages, strict=True)
            for index, value in values.items()
        ]
        scores = [s for place in kept for s in records[place].scores if s is not None]
        return Batch(
            tuple(example for example in examples if example is not None),
            tuple(scores),
            len(records),
            len(records) - len(kept),
            silent,
            tuple(staleness),
        )

    @property
    def _distils(self) -> bool:
        return bool(self.parameters["method"] == "distill")

    @property
    def _reads_tokens(self) -> bool:
        return bool(self.parameters["method"] == "token-pg")

    def _teaches(self, record: RolloutRecord) -> bool:
        return record.kept or (self._distils and bool(record.trajectories))

    def _staleness(self, records: Sequence[RolloutRecord]) -> list[int]:
        told = self.parameters["staleness"]
        if told is None:
            return [0] * len(records)
        if len(told) != len(records):
            raise InvalidParameter("staleness", told, f"say it of each of the {len(records)} rollouts")
        return [int(steps) for steps in told]

    def _check(self, name: str, record: RolloutRecord, staleness: int) -> None:
        if record.card != self.card:
            remedy = f"this step trains {self.card}: pass rollouts of that card"
            raise InvalidParameter(f"{name}.card", record.card, remedy)
        scored = sum(score is not None for score in record.scores)
        if record.kept and scored < LEAST_SCORED and not self._distils:
            remedy = f"a group has {LEAST_SCORED} samples with a score, or more: there is nothing to compare"
            raise InvalidParameter(f"{name}.samples", scored, remedy)
        limit = self.parameters["max_staleness"]
        if staleness > limit:
            remedy = f"its weights may lie {limit} steps behind: raise max_staleness, or sample again"
            raise InvalidParameter(f"{name}.staleness", staleness, remedy)
        if self.weights is None:
            return
        sampled, pinned = record.weights.get(self.component), self.weights.get(self.component)
        if sampled != pinned and not staleness and not self._distils:
            remedy = f"the step trains {str(pinned)[:12]}: sample with that, or tell staleness and its limit"
            raise InvalidParameter(f"{name}.weights.{self.component}", str(sampled)[:12], remedy)

    def _advantages(self, records: Sequence[RolloutRecord]) -> tuple[list[dict[int, float]], int]:
        """By record, the advantage of each sample that is an example; and how many contrasts are flat."""
        if self._distils:
            return [dict.fromkeys(range(len(record.samples)), 1.0) for record in records], 0
        asked = self.parameters
        how = {
            "scale": asked["advantage_scale"],
            "clip": asked["advantage_clip"],
            "drop_zero_std": asked["drop_zero_std"],
        }
        if any(self.component in sample.nodes for record in records for sample in record.samples):
            return self._credited(records, how)
        if asked["credit"] == "per_expert":
            remedy = f"no sample says at which node {self.component} wrote: collect a tree, or use shared"
            raise InvalidParameter("credit", "per_expert", remedy)
        found = group_advantages([record.scores for record in records], **how)
        values = [
            {at: value for at, value in enumerate(group) if value is not None} for group in found.values
        ]
        return values, found.zero_std_groups

    def _credited(
        self, records: Sequence[RolloutRecord], how: Mapping[str, Any]
    ) -> tuple[list[dict[int, float]], int]:
        """An example for each output of the component, told by the first sample that captured it."""
        groups = [[Leaf(sample.nodes, sample.score) for sample in record.samples] for record in records]
        experts = [*self.experts, *sorted(_experts(records) - set(self.experts))]
        earned = credit(groups, experts, self.parameters["credit"], **how)[self.component]
        values: list[dict[int, float]] = [{} for _ in records]
        for output in earned.teaching:
            assert output.advantage is not None
            record = records[output.group]
            captured = [at for at in output.samples if self._captured(record.samples[at])]
            if captured:
                values[output.group][captured[0]] = output.advantage
        return values, earned.zero_std_groups

    def _captured(self, sample: Sample) -> bool:
        """Whether there is a record of what the component did for a sample."""
        return self.component in sample.tokens if self._reads_tokens else sample.trajectory is not None

    def _example(
        self, place: int, record: RolloutRecord, index: int, value: float, staleness: int, begin: Any
    ) -> Example | None:
        """The example of a sample; None where the component had no part in it."""
        sample, name = record.samples[index], f"rollouts.{place}.samples.{index}"
        image = None
        if sample.image is not None:
            image = self._of("images", begin.images + sample.image, name)
        if self._reads_tokens:
            file = sample.tokens.get(self.component)
            if file is None:
                return None
            tokens = self._of("tokens", begin.tokens + file, name)
            return Example(place, record, sample, value, staleness, tokens=tokens, image=image)
        if sample.trajectory is None:
            return None
        file, row = sample.trajectory
        trajectory = self._of("trajectories", begin.trajectories + file, name)
        _check_trajectory(name, record, sample, trajectory, row)
        return Example(place, record, sample, value, staleness, trajectory, row, image=image)

    def _of(self, slot: str, at: int, name: str) -> Any:
        files = self.lists.get(slot) or ()
        if at >= len(files):
            remedy = f"it is number {at} of the {slot} of all rollouts, and {len(files)} are given"
            raise InvalidParameter(f"{name}.{slot}", at, remedy)
        return files[at]


def _experts(records: Iterable[RolloutRecord]) -> set[str]:
    return {expert for record in records for sample in record.samples for expert in sample.nodes}


def _check_trajectory(
    name: str, record: RolloutRecord, sample: Sample, trajectory: TrajectoryGroup, row: int
) -> None:
    facts = trajectory.facts
    if row >= len(facts.seeds) or facts.seeds[row] != sample.seed:
        remedy = f"row {row} of its trajectory is of another sample: give each record's own, in their order"
        raise InvalidParameter(f"{name}.seed", sample.seed, remedy)
    for component, digest in facts.weights.items():
        if record.weights.get(component) != digest:
            remedy = f"its trajectory was sampled with {digest[:12]}: give the record's own"
            shown = str(record.weights.get(component))[:12]
            raise InvalidParameter(f"{name}.weights.{component}", shown, remedy)


def minibatches(
    examples: Sequence[Example], order: Sequence[int], size: int | None
) -> Iterator[list[Example]]:
    """The examples in an order, cut into those of each optimiser step."""
    size = size or max(len(examples), 1)
    for start in range(0, len(order), size):
        yield [examples[at] for at in order[start : start + size]]
