"""A training's configuration: all that decides its course. Kept with the training, and as JSON files.

`recipes/` beside this module holds the ones that ship. A configuration is one JSON object; `read` takes a
recipe's name and what is to be different.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import resources
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from mutoscope.flows.rl.asks import Ask, asks_of
from mutoscope.models.registry import get_card
from mutoscope.platform import ids
from mutoscope.platform.engine.card import invalid_parameter
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.training.cards import TrainParameters
from mutoscope.platform.training.sentinels import Limits

RECIPES = "recipes"

FREE = ("iterations", "at_once", "patience_seconds", "live", "evaluation.limits")
"""What may change when a training is started again: how far it goes and how fast, and when it is stopped."""

_ORDER_DOMAIN = "mutoscope.prompt-order/1"

Weighted = Annotated[float, Field(allow_inf_nan=False)]


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StageSettings(_Settings):
    """One card's part in every sample.

    Attributes:
        train: by component, what `TrainParameters` takes; components that are not named stay as they are.
        weights: versions to begin from, such as ``flux-t2i@candidate``; the others are those live then.
        serve: parameters of the samples that are evaluated, where they are not those of the rollouts.
        teacher: versions, by number, that rollouts are sampled with in place of those that are trained: what
            a student learns from.
    """

    card: str
    train: Mapping[str, Mapping[str, Any]] = {}
    parameters: Mapping[str, Any] = {}
    laws: tuple[str, ...] = ("flow-sde",)
    weights: tuple[str, ...] = ()
    serve: Mapping[str, Any] = {}
    teacher: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _can_be_trained(self) -> StageSettings:
        known = {part.name for part in get_card(self.card).components if part.weighted}
        for text in self.teacher:
            if not re.fullmatch(rf"{re.escape(self.card)}/\w+@\d+", text):
                raise ValueError(f"{text} is no teacher: name a version of {self.card} by its number")
        for component, given in self.train.items():
            if component not in known:
                raise ValueError(
                    f"{self.card} has no weights {component}: use one of {', '.join(sorted(known))}"
                )
            for own in {"component", "staleness", "max_staleness"} & set(given):
                raise ValueError(f"train.{component}.{own} is the training's to say: leave it out")
            self.parameters_of(component)
        return self

    def parameters_of(self, component: str) -> TrainParameters:
        """How a component is trained. Raises InvalidParameter."""
        try:
            return TrainParameters(component=component, **self.train[component])
        except ValidationError as error:
            raise invalid_parameter(error, self.train[component]) from None

    @property
    def served(self) -> dict[str, Any]:
        """Parameters of an evaluated sample: the rollouts' own, without what only a rollout takes."""
        known = get_card(self.card).parameters.model_fields
        guidance = {"guidance_scale": 1.0} if "guidance_scale" in known else {}
        shared = {name: value for name, value in self.parameters.items() if name in known}
        return {**guidance, **shared, **self.serve}


Prompts = Annotated[tuple[Ask, ...], BeforeValidator(asks_of)]


class EvaluationSettings(_Settings):
    """What is looked at on the way, with fixed prompts and seeds.

    Attributes:
        every: so many iterations lie between two evaluations; there is one before the first and one after
            the last.
        prompts: as the training's, where none are named. held_out: others, which are not trained.
        seeds: of the samples of each prompt.
        judges: cards that score, beside the rewards.
        best_by: the score that decides which version is best; the first judge where none is named.
        limits: see `sentinels`.
    """

    every: int = Field(5, ge=1)
    prompts: Prompts = ()
    held_out: Prompts = ()
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**63)], ...] = Field((1, 2, 3, 4), min_length=1)
    judges: tuple[str, ...] = ("scene-check",)
    best_by: str | None = None
    limits: Limits = Limits()


class TrainingConfiguration(_Settings):
    """A whole training.

    Attributes:
        stages: the cards of a sample, in order; each begins with what the one before made.
        prompts: of all iterations, with their targets.
        groups: prompts of an iteration; all of them where it is None.
        samples, unrefined, branches, refills: of a group; see `collecting.Plan`.
        rewards: cards that score what is made last, and their weights.
        off_policy: learn from what `rl.data_generation` makes for this training, as long as it lies no more
            than so many versions behind; 0: collect for every iteration at the head.
        patience_seconds: how long an iteration waits for such rollouts.
        live: whether what is best becomes live.
        seed: of everything that is drawn.
    """

    stages: tuple[StageSettings, ...] = Field(min_length=1, max_length=4)
    prompts: Prompts = Field(min_length=1)
    groups: int | None = Field(None, ge=1)
    samples: int = Field(ge=2, le=256)
    unrefined: int = Field(0, ge=0)
    branches: tuple[Annotated[int, Field(ge=1)], ...] = ()
    refills: int = Field(2, ge=0)
    rewards: Mapping[str, Weighted] = Field({"reward-scene": 1.0}, min_length=1)
    iterations: int = Field(ge=1, le=100_000)
    off_policy: int = Field(0, ge=0)
    patience_seconds: float = Field(600.0, gt=0, allow_inf_nan=False)
    evaluation: EvaluationSettings | None = EvaluationSettings()
    live: bool = False
    at_once: int = Field(8, ge=1, le=64)
    seed: int = Field(0, ge=0, lt=2**63)

    @model_validator(mode="after")
    def _hangs_together(self) -> TrainingConfiguration:
        cards = [stage.card for stage in self.stages]
        if len(set(cards)) != len(cards):
            raise ValueError(f"stages name {', '.join(cards)}: use each card once")
        if self.groups is not None and self.groups > len(self.prompts):
            raise ValueError(f"groups is {self.groups}: use {len(self.prompts)} or less, one for each prompt")
        for reward in (*self.rewards, *(self.evaluation.judges if self.evaluation else ())):
            if get_card(reward).run_kind != "reward":
                raise ValueError(f"{reward} scores nothing: use a reward card")
        if self.evaluation and self.evaluation.best_by not in (None, *self.rewards, *self.evaluation.judges):
            raise ValueError(f"best_by is {self.evaluation.best_by}: use a reward or a judge of the training")
        return self

    @cached_property
    def trained(self) -> tuple[tuple[str, str], ...]:
        """Card and component of everything that is trained, in the order in which it is."""
        return tuple((stage.card, component) for stage in self.stages for component in stage.train)

    def stage(self, card: str) -> StageSettings:
        """The stage of a card."""
        return next(stage for stage in self.stages if stage.card == card)

    def prompts_of(self, iteration: int) -> tuple[Ask, ...]:
        """The prompts of an iteration. Every prompt has its turn before one comes again; in which order is
        drawn anew each time round."""
        count, total = self.groups or len(self.prompts), len(self.prompts)
        places = range(iteration * count, (iteration + 1) * count)
        return tuple(self.prompts[self._order(place // total)[place % total]] for place in places)

    def _order(self, turn: int) -> list[int]:
        places = range(len(self.prompts))
        return sorted(places, key=lambda place: ids.digest(_ORDER_DOMAIN, [self.seed, turn, place]))

    def to_json(self) -> dict[str, Any]:
        """As it is kept with the training."""
        return self.model_dump(mode="json")


def read(recipe: str, changes: Mapping[str, Any] | None = None) -> TrainingConfiguration:
    """A recipe that ships, with what is to be different: whole fields, or ``a.b`` for a part of one.

    Raises:
        InvalidParameter: no such recipe, or a field that is wrong.
    """
    known = recipes()
    if recipe not in known:
        raise InvalidParameter("recipe", recipe, f"use one of {', '.join(known)}")
    values: dict[str, Any] = json.loads(_folder().joinpath(f"{recipe}.json").read_text())
    for path, value in (changes or {}).items():
        _put(values, path, value)
    return configuration_of(values)


def configuration_of(values: Mapping[str, Any]) -> TrainingConfiguration:
    """A configuration from plain data. Raises InvalidParameter."""
    try:
        return TrainingConfiguration.model_validate(values)
    except ValidationError as error:
        raise invalid_parameter(error, values) from None


def recipes() -> list[str]:
    """Names of those that ship."""
    return sorted(one.name.removesuffix(".json") for one in _folder().iterdir() if one.name.endswith(".json"))


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, Any, Any] | None:
    """The first field in which two configurations differ that decides a training's course: its path, and the
    two values; None if there is none."""
    for path, one, other in _differences(before, now, ""):
        if not f"{path}.".startswith(tuple(f"{free}." for free in FREE)):
            return path, one, other
    return None


def _differences(one: Any, other: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in sorted({*one, *other}):
            yield from _differences(one.get(name), other.get(name), f"{path}.{name}".lstrip("."))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for at, pair in enumerate(zip(one, other, strict=True)):
            yield from _differences(*pair, f"{path}.{at}")
    elif one != other:
        yield path, one, other


def _put(values: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    within: Any = values
    for name in parents:
        if isinstance(within, list) and name.isdecimal() and int(name) < len(within):
            within = within[int(name)]
        elif isinstance(within, dict):
            within = within.setdefault(name, {})
        else:
            raise InvalidParameter(path, value, f"{name} names nothing there")
    if isinstance(within, list) and last.isdecimal() and int(last) < len(within):
        within[int(last)] = value
    elif isinstance(within, dict):
        within[last] = value
    else:
        raise InvalidParameter(path, value, f"{last} names nothing there")


def _folder() -> Any:
    return resources.files("mutoscope.flows.rl").joinpath(RECIPES)
