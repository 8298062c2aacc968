"""A training under way: what it was set up with, where it began, and how far it has come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mutoscope.flows.rl.configuration import TrainingConfiguration, difference
from mutoscope.flows.rl.evaluate import Judge, Served
from mutoscope.flows.rl.grouping import Shape
from mutoscope.flows.rl.settling import Limits, Plan
from mutoscope.flows.rl.stages import Stage, pinned
from mutoscope.models.registry import get_card
from mutoscope.platform import ids
from mutoscope.platform.catalog import Training, WeightVersion
from mutoscope.platform.errors import InvalidParameter, UnknownReference
from mutoscope.platform.orchestration.context import current_workflow
from mutoscope.platform.orchestration.runtime import Runtime

Part = tuple[str, str]
"""Card and component."""

_SEED_DOMAIN = "mutoscope.train-seed/1"


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a training has come.

    Attributes:
        heads: the version of everything that it trains. states: digest of what the last step of each left.
    """

    heads: Mapping[Part, WeightVersion]
    states: Mapping[Part, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Course:
    """A training as it was set up.

    Attributes:
        base: by card and component, the version that it began from; of rewards and judges, too.
    """

    name: str
    configuration: TrainingConfiguration
    base: Mapping[str, Mapping[str, WeightVersion]]

    @property
    def beginning(self) -> Standing:
        """Before the first iteration."""
        return Standing({(card, part): self.base[card][part] for card, part in self.configuration.trained})

    def weights(self, card: str, heads: Mapping[Part, WeightVersion]) -> dict[str, str]:
        """Every component's version of a card, by name: the heads of what is trained."""
        own = {part: version for (owner, part), version in heads.items() if owner == card}
        return {part: str(version) for part, version in {**self.base.get(card, {}), **own}.items()}

    def plan(self, iteration: int, heads: Mapping[Part, WeightVersion]) -> Plan:
        """The rollouts of an iteration."""
        asked = self.configuration
        return Plan(
            stages=[
                Stage(
                    stage.card,
                    {**self.weights(stage.card, heads), **self.teacher(stage.card)},
                    stage.parameters,
                    stage.laws,
                )
                for stage in asked.stages
            ],
            asks=asked.prompts_of(iteration),
            shape=Shape(asked.samples, asked.unrefined, asked.branches, asked.refills),
            rewards=asked.rewards,
            seed=asked.seed,
            iteration=iteration,
            reward_weights={card: self.weights(card, {}) for card in asked.rewards if self.base.get(card)},
            at_once=asked.at_once,
            limits=Limits(),
        )

    def teacher(self, card: str) -> dict[str, str]:
        """The versions that rollouts of a card are sampled with instead of its heads."""
        named = self.configuration.stage(card).teacher
        return {text.partition("/")[2].partition("@")[0]: text for text in named}

    def served(self, heads: Mapping[Part, WeightVersion]) -> list[Served]:
        """The stages as they are evaluated."""
        return [
            Served(stage.card, self.weights(stage.card, heads), stage.served)
            for stage in self.configuration.stages
        ]

    def judges(self) -> list[Judge]:
        """The rewards, and whoever else looks."""
        asked = self.configuration
        more = asked.evaluation.judges if asked.evaluation else ()
        return [Judge(card, self.weights(card, {})) for card in dict.fromkeys((*asked.rewards, *more))]

    def step_seed(self, iteration: int, part: Part) -> int:
        """The seed of what a training step draws, 0 <= n < 2**63."""
        drawn = ids.digest(_SEED_DOMAIN, [self.configuration.seed, iteration, *part])
        return int(drawn[:16], 16) >> 1


def begin(runtime: Runtime, name: str, configuration: TrainingConfiguration) -> Course:
    """Set a training up, or take up the one of that name.

    Raises:
        InvalidParameter: the name is taken, or the training was set up with another configuration.
        UnknownReference: a version to begin from is not there, or a card has no weights.
    """
    trainings = runtime.catalog.trainings
    try:
        training = trainings.get(name)
    except UnknownReference:
        context = current_workflow.get()
        training = trainings.begin(
            name,
            configuration.to_json(),
            _beginnings(runtime, configuration),
            heads=configuration.trained,
            workflow_run_id=context.run_id if context else None,
        )
    _refuse_changes(training, configuration)
    get = runtime.catalog.weights.get
    base = {card: {part: get(text) for part, text in parts.items()} for card, parts in training.base.items()}
    return Course(name, configuration, base)


def _beginnings(runtime: Runtime, configuration: TrainingConfiguration) -> Iterable[WeightVersion]:
    """The version of everything that the training uses, as it is now."""
    judges = configuration.evaluation.judges if configuration.evaluation else ()
    for stage in configuration.stages:
        card = get_card(stage.card)
        versions = pinned(runtime.catalog, card, list(stage.weights))
        if not versions:
            remedy = f"use `mutoscope weights import {card.id} FOLDER`"
            raise UnknownReference(f"card {card.id} has no weights to begin from: {remedy}")
        for component in stage.train:
            if component not in versions:
                raise UnknownReference(f"card {card.id} has no weights of {component} to begin from")
        yield from versions.values()
    for reward in dict.fromkeys((*configuration.rewards, *judges)):
        yield from pinned(runtime.catalog, get_card(reward), ()).values()


def _refuse_changes(training: Training, configuration: TrainingConfiguration) -> None:
    found = difference(training.configuration, configuration.to_json())
    if found is not None:
        path, before, now = found
        remedy = f"training {training.name} was set up with {before!r}; use another name, or the same {path}"
        raise InvalidParameter(path, now, remedy)
