"""The cards of a sample, settled before anything runs: versions pinned, parameters checked.

A sample passes through one stage or more, such as a picture's and a video's that begins with it. What is made
last is what rewards see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from mutoscope.flows.rl.asks import Ask
from mutoscope.models.registry import cards, get_card
from mutoscope.platform.catalog import Catalog, WeightVersion
from mutoscope.platform.engine.card import Card, Recipe
from mutoscope.platform.engine.request import Profile
from mutoscope.platform.engine.rollout import RolloutPlan
from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.orchestration.context import current_workflow
from mutoscope.platform.orchestration.plan import recipe_of
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.orchestration.selection import Weights, select
from mutoscope.platform.training.groups import Draw
from mutoscope.platform.trajectory import LAWS

REFINE, SEEDS = "refine", "refiner_seeds"
"""Parameters of a card with refiners: whether they are asked, and the seeds they draw with."""

GENERATOR = "transformer"
"""The expert that draws, as a group's tree calls it."""

_TOKENS = "_tokens"

MEDIA = ("video", "image")
"""What rewards see, the richer first."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One card's part in every sample.

    Attributes:
        weights: versions to sample from where not the live ones; see `selection`.
        parameters: the card's own and those of rollouts, apart from prompt, law and seeds.
        laws: how steps in the window are drawn; of several, each group draws one.
    """

    card: str
    weights: Weights = ()
    parameters: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    laws: Sequence[str] = ("flow-sde",)


@dataclass(frozen=True, slots=True)
class Settled:
    """A stage whose versions are pinned: an alias that moves meanwhile changes nothing.

    Attributes:
        versions: by component, all of them.
        parts: the refiners that these weights have, in their order.
    """

    stage: Stage
    card: Card
    versions: Mapping[str, WeightVersion]
    recipe: Recipe
    parts: tuple[str, ...]

    @property
    def weights(self) -> dict[str, str]:
        """The versions as `engine_run` takes them."""
        return {component: str(version) for component, version in self.versions.items()}

    @property
    def medium(self) -> str:
        """The slot of what it makes."""
        made = {slot.name for slot in self.card.outputs}
        return next(medium for medium in MEDIA if medium in made)

    @property
    def takes_image(self) -> bool:
        """Whether it begins with a picture."""
        return any(slot.name == "image" and slot.required for slot in self.card.inputs)

    def given(self, ask: Ask, draw: Draw) -> dict[str, Any]:
        """What every sample of a group is asked, seeds of its own apart."""
        given: dict[str, Any] = {**self.stage.parameters, "prompt": ask.prompt}
        if self.card.rollout_parameters is not None:
            given |= {"group_seed": draw.group_seed, "law": draw.one_of("law", self.stage.laws)}
        return given

    def resolved(self, ask: Ask, draw: Draw) -> dict[str, Any]:
        """The same as a run is recorded with: complete.

        Raises:
            InvalidParameter: the card cannot be asked that, or blends guidance into the policy.
        """
        parameters = self.card.resolve(self.given(ask, draw), self.recipe, Profile.ROLLOUT)
        for name in ("guidance_scale", "guidance_scale_2"):
            scale = parameters.get(name)
            if scale is not None and scale > 1:
                remedy = "use 1: a rollout's policy is the model itself, not its guided blend"
                raise InvalidParameter(name, scale, remedy)
        return parameters

    def window(self, parameters: Mapping[str, Any]) -> tuple[int, int] | None:
        """The group's stochastic steps; None for a card without noise levels."""
        if self.card.rollout_parameters is None:
            return None
        return RolloutPlan.of(parameters, parameters["num_inference_steps"]).window


def settle_stage(runtime: Runtime, stage: Stage) -> Settled:
    """Pin a stage's versions.

    Raises:
        UnknownCard, InvalidParameter: no such card, or one that cannot be rolled out; a law there is not.
        UnknownReference: no such version, or a card without weights.
    """
    card = get_card(stage.card)
    if Profile.ROLLOUT not in card.profiles or not any(slot.name in MEDIA for slot in card.outputs):
        rolled = (one.id for one in cards().values() if Profile.ROLLOUT in one.profiles)
        known = ", ".join(name for name in rolled if any(s.name in MEDIA for s in get_card(name).outputs))
        raise InvalidParameter("card", stage.card, f"no reward sees rollouts of it: use one of {known}")
    for law in stage.laws:
        if law not in LAWS:
            raise InvalidParameter("laws", law, f"use {', '.join(LAWS)}")
    if not stage.laws:
        raise InvalidParameter("laws", [], f"use one or more of {', '.join(LAWS)}")
    if taken := sorted({"prompt", "law", "group_seed", REFINE, SEEDS} & set(stage.parameters)):
        remedy = "leave it out: the collection says it for every group"
        raise InvalidParameter(f"parameters.{taken[0]}", stage.parameters[taken[0]], remedy)
    versions = pinned(runtime.catalog, card, stage.weights)
    digests = {component: version.digest for component, version in versions.items()}
    recipe = recipe_of(runtime, card, digests)
    present = getattr(recipe, "refiners", {})
    slots = (slot.name for slot in card.outputs)
    parts = (name.removesuffix(_TOKENS) for name in slots if name.endswith(_TOKENS))
    return Settled(stage, card, versions, recipe, tuple(part for part in parts if part in present))


def pinned(catalog: Catalog, card: Card, weights: Weights) -> dict[str, WeightVersion]:
    """The version of each component of a card: selected, as the workflow was started with, or live."""
    versions = dict(catalog.weights.live(card.weights_card))
    context = current_workflow.get()
    for component, digest in (context.pins.get(card.weights_card, {}) if context else {}).items():
        names = catalog.weights.versions_of_digest(digest)
        own = [one for one in names if (one.card, one.component) == (card.weights_card, component)]
        versions[component] = own[-1]
    return versions | select(catalog, card.id, weights)


def tokens_of(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """What refiners wrote, by part, of a run's outputs."""
    return {name.removesuffix(_TOKENS): each for name, each in outputs.items() if name.endswith(_TOKENS)}
