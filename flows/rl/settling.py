"""A collection, checked before anything of it is queued.

Versions are pinned here, and everything is refused that can be found wrong without a run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from mutoscope.flows.rl.asks import Ask
from mutoscope.flows.rl.grouping import Shape
from mutoscope.flows.rl.sampling import Scorer
from mutoscope.flows.rl.stages import Settled, Stage, pinned, settle_stage
from mutoscope.models.registry import cards, get_card
from mutoscope.platform.engine.card import Card
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.orchestration.plan import recipe_of
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.orchestration.selection import Weights
from mutoscope.platform.refs import ArtifactRef
from mutoscope.platform.training.groups import LEAST_SCORED, Draw


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a collection ends early. None: nowhere.

    Attributes:
        max_groups: prompts that are sampled, the first ones. max_samples: samples, refills left aside.
        queue_seconds: how long a rollout may wait for a worker before its sample is given up.
        score_seconds: how long a score may take, waiting included.
        follow: alias of the training whose head must not be more than `max_staleness` versions ahead of the
            pinned ones when a group begins.
    """

    max_groups: int | None = None
    max_samples: int | None = None
    queue_seconds: float | None = None
    score_seconds: float | None = None
    follow: str | None = None
    max_staleness: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """A collection.

    Attributes:
        stages: what a sample passes through; rewards see what the last one makes.
        shape: samples of a group, and what is special about some of them.
        rewards: reward cards, with their shares in the score.
        reward_weights: by reward card, versions to score with where not the live ones.
        seed, iteration: of the training, which all draws come from.
        at_once: samples under way at a time.
    """

    stages: Sequence[Stage]
    asks: Sequence[Ask]
    shape: Shape
    rewards: Mapping[str, float]
    seed: int
    iteration: int = 0
    reward_weights: Mapping[str, Weights] = field(default_factory=dict)
    at_once: int = 8
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class Whole:
    """A plan, settled.

    Attributes:
        asks: those that the limits leave, each with the pictures that it names; `stopped` says which they cut
            off.
    """

    stages: tuple[Settled, ...]
    scorers: tuple[Scorer, ...]
    asks: tuple[tuple[Ask, tuple[ArtifactRef, ...]], ...]
    stopped: str | None


def settle(runtime: Runtime, plan: Plan) -> Whole:
    """Pin all versions and check everything that can be checked without a run. Raises InvalidInput."""
    _check(plan)
    stages = tuple(settle_stage(runtime, stage) for stage in plan.stages)
    _check_chain(plan, stages)
    scorers = tuple(_scorer(runtime, plan, card_id) for card_id in plan.rewards)
    draws = (Draw(seed=plan.seed, iteration=plan.iteration, prompt_index=at) for at in range(len(plan.asks)))
    for ask, draw in zip(plan.asks, draws, strict=True):
        for stage in stages:
            stage.resolved(ask, draw)
    asks = [(ask, tuple(_picture(runtime, text) for text in ask.images)) for ask in plan.asks]
    limits = plan.limits
    most, why = len(plan.asks), None
    if limits.max_groups is not None and limits.max_groups < most:
        most, why = limits.max_groups, f"max_groups={limits.max_groups}"
    if limits.max_samples is not None and limits.max_samples // plan.shape.samples < most:
        most, why = limits.max_samples // plan.shape.samples, f"max_samples={limits.max_samples}"
    stopped = f"{why}: {most} of {len(plan.asks)} prompts were sampled" if why else None
    return Whole(stages, scorers, tuple(asks[:most]), stopped)


def _check(plan: Plan) -> None:
    """What the numbers alone say."""
    if not plan.asks:
        raise InvalidParameter("prompts", [], "name one prompt or more")
    if not plan.stages:
        raise InvalidParameter("stages", [], "name a card to roll out")
    if plan.at_once < 1:
        raise InvalidParameter("at_once", plan.at_once, "use 1 or more")
    _check_shape(plan.shape)
    if not plan.rewards:
        raise InvalidParameter("rewards", {}, f"use one or more of {', '.join(_reward_cards())}")
    for card_id, share in plan.rewards.items():
        if not (math.isfinite(share) and share):
            raise InvalidParameter(f"rewards.{card_id}", share, "use a finite weight other than 0")


def _check_shape(shape: Shape) -> None:
    if shape.samples < LEAST_SCORED:
        remedy = f"use {LEAST_SCORED} or more: an advantage contrasts a sample with others of its group"
        raise InvalidParameter("samples", shape.samples, remedy)
    if not 0 <= shape.unrefined <= shape.samples:
        raise InvalidParameter("unrefined", shape.unrefined, f"a group has {shape.samples} samples")
    leaves, refined = math.prod(shape.branches), shape.samples - shape.unrefined
    if shape.branches and (not refined or refined % leaves):
        remedy = f"they make {leaves} leaves: use a divisor of {refined}, the samples that are refined"
        raise InvalidParameter("branches", list(shape.branches), remedy)


def _check_chain(plan: Plan, stages: Sequence[Settled]) -> None:
    """Each stage after the first begins with the picture that the one before it made."""
    names = [stage.card.id for stage in stages]
    if len(set(names)) < len(names):
        raise InvalidParameter("stages", names, "use a card once: its two records could not be told apart")
    for before, after in pairwise(stages):
        if before.medium != "image" or not after.takes_image:
            remedy = f"{after.card.id} cannot begin with what {before.card.id} makes"
            raise InvalidParameter("stages", names, remedy)
    parts = [part for stage in stages for part in stage.parts]
    if plan.shape.unrefined and not parts:
        raise InvalidParameter("unrefined", plan.shape.unrefined, f"leave it out: {names[0]} has no refiners")
    if plan.shape.branches and len(plan.shape.branches) != len(parts):
        remedy = f"use one number for each of {', '.join(parts)}" if parts else "there are no refiners"
        raise InvalidParameter("branches", list(plan.shape.branches), remedy)
    for ask in plan.asks:
        _check_images(ask, stages[0], plan.shape.samples)


def _check_images(ask: Ask, first: Settled, samples: int) -> None:
    if not first.takes_image:
        if ask.images:
            raise InvalidParameter("images", list(ask.images), f"leave them out: {first.card.id} takes none")
    elif len(ask.images) not in (1, samples):
        remedy = f"{first.card.id} begins with one: give 1, or one for each of {samples} samples"
        raise InvalidParameter("images", list(ask.images), remedy)


def _picture(runtime: Runtime, text: str) -> ArtifactRef:
    ref = runtime.catalog.artifacts.resolve(text)
    if ref.kind != "image":
        raise InvalidParameter("images", text, f"use an artifact of kind image: it is a {ref.kind}")
    return ref


def _scorer(runtime: Runtime, plan: Plan, card_id: str) -> Scorer:
    """A reward card at its versions of now, which can read what every prompt is held against.

    Raises:
        InvalidParameter: no reward card, or a target that it cannot read.
        UnknownReference: it has no weights.
    """
    known = _reward_cards()
    if card_id not in known:
        raise InvalidParameter("rewards", card_id, f"no such reward card: use {', '.join(known)}")
    card = get_card(card_id)
    target = target_of(card)
    versions = pinned(runtime.catalog, card, plan.reward_weights.get(card_id, ()))
    recipe = recipe_of(runtime, card, {name: version.digest for name, version in versions.items()})
    for ask in plan.asks:
        card.resolve({target: ask.against}, recipe)
    weights = {component: str(version) for component, version in versions.items()}
    return Scorer(card_id, plan.rewards[card_id], target, weights)


def _reward_cards() -> list[str]:
    return [card.id for card in cards().values() if card.run_kind == "reward"]


def target_of(card: Card) -> str:
    """The parameter that says what a sample is held against: the one that must be given."""
    required = [name for name, info in card.parameters.model_fields.items() if info.is_required()]
    if len(required) != 1:
        remedy = f"it requires {', '.join(required) or 'nothing'}, where one text should say what is wanted"
        raise InvalidParameter("rewards", card.id, remedy)
    return required[0]
