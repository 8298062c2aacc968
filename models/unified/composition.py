"""What a composed card is made of, and how the names of its parts go together. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import GenericAlias
from typing import Annotated, Any

from pydantic import BaseModel, Field, create_model

from mutoscope.platform.engine.card import Card, ComponentSpec, Recipe, Slot
from mutoscope.platform.engine.request import Profile
from mutoscope.platform.engine.rollout import RolloutParameters

REFINER = "refiner-lm"
"""The card of every refiner."""

PROMPT = "prompt"
"""The parameter that refiners rewrite and the generator draws."""

REFINE = "refine"
"""The parameter that turns the refiners on and off."""

SEEDS = "refiner_seeds"
"""The parameter of a rollout that gives refiners their seeds."""


@dataclass(frozen=True, slots=True)
class Composition:
    """Refiners in front of a generator.

    The generator's components, parameters and outputs keep their names. A refiner is a part of its own name:
    its language model is the component of that name, its other components are prefixed with it.

    Attributes:
        generator: card id.
        refiners: names of the parts that rewrite the prompt, in this order. The first is required.
    """

    id: str
    title: str
    generator: str
    refiners: tuple[str, ...]


def component_names(refiner: Card, part: str) -> dict[str, str]:
    """What the refiner card's components are called as components of the composed card."""
    return {spec.name: part if spec.weighted else f"{part}_{spec.name}" for spec in refiner.components}


def tokens_slot(part: str) -> str:
    """The output slot of a refiner's rollout."""
    return f"{part}_tokens"


def refiner_fields(refiner: type[BaseModel]) -> frozenset[str]:
    """The parameters of a composed card that are its refiners'."""
    return frozenset(refiner.model_fields) - {PROMPT}


class ComposedRollout(RolloutParameters):
    """What a request may set beside the card's parameters when it is a rollout."""

    refiner_seeds: Mapping[str, Annotated[int, Field(ge=0, lt=2**63)]] | None = Field(
        None,
        description="Seeds of refiners by their parts' names; requests that share one share what it writes. "
        "Left out, each is derived from the request's own.",
    )


class RefinedRecipe(Recipe):
    """The generator's recipe with one for every refiner there is, by its part's name."""

    refiners: Mapping[str, Recipe]

    def check(self, values: Mapping[str, Any]) -> None:
        """The generator's limits, then those of the refiners that will be asked."""
        super().check(values)
        for recipe in self.refiners.values() if values[REFINE] else ():
            names = type(recipe).model_fields
            recipe.check(
                {
                    name: getattr(recipe, name) if value is None and name in names else value
                    for name, value in values.items()
                }
            )


def compose(composition: Composition, cards: Mapping[str, Card], module: str) -> Card:
    """The composed card.

    Args:
        cards: the cards of the parts, by id.
        module: the module whose functions `inspect_X`, `load_X` and `build_X` serve it, X being its id in
            snake case.
    """
    generator, refiner = cards[composition.generator], cards[REFINER]
    suffix = composition.id.replace("-", "_")
    profiles = tuple(profile for profile in generator.profiles if profile in refiner.profiles)
    return Card(
        id=composition.id,
        title=composition.title,
        components=(*generator.components, *_components(composition, refiner)),
        inputs=generator.inputs,
        outputs=(*generator.outputs, *_outputs(composition)),
        parameters=_parameters(composition, generator.parameters, refiner.parameters),
        recipe=_recipe(composition, generator.recipe, refiner.recipe),
        inspector=f"{module}.folder:inspect_{suffix}",
        loader=f"{module}.components:load_{suffix}",
        builder=f"{module}.program:build_{suffix}",
        sources=tuple(dict.fromkeys((module, *generator.sources, *refiner.sources))),
        profiles=profiles,
        rollout_parameters=ComposedRollout,
    )


def _components(composition: Composition, refiner: Card) -> list[ComponentSpec]:
    first = composition.refiners[0]
    return [
        ComponentSpec(
            component_names(refiner, part)[spec.name],
            spec.library,
            spec.classes,
            weighted=spec.weighted,
            optional=part != first,
        )
        for part in composition.refiners
        for spec in refiner.components
    ]


def _outputs(composition: Composition) -> list[Slot]:
    tokens = [
        Slot(
            tokens_slot(part),
            "json",
            f"What {part} read and wrote, as token ids, with log-probabilities.",
            required=False,
            profiles=(Profile.ROLLOUT,),
        )
        for part in composition.refiners
    ]
    return [Slot("text", "text", "The prompt as it was drawn."), *tokens]


def _parameters(
    composition: Composition, generator: type[BaseModel], refiner: type[BaseModel]
) -> type[BaseModel]:
    """The generator's parameters, the refiners' besides the prompt, and the switch between them."""
    names = refiner_fields(refiner)
    if clash := names & set(generator.model_fields):
        raise ValueError(f"{composition.id}: generator and refiner both call a parameter {min(clash)}")
    switch = Field(True, description="Let the refiners rewrite the prompt; otherwise it is drawn as it is.")
    added: dict[str, Any] = {REFINE: (bool, switch)}
    added |= {
        name: (field.annotation, field) for name, field in refiner.model_fields.items() if name in names
    }
    name = f"{_camel(composition.id)}Parameters"
    return create_model(name, __base__=generator, __module__=__name__, **added)


def _recipe(composition: Composition, generator: type[Recipe], refiner: type[Recipe]) -> type[Recipe]:
    """The generator's recipe and those of the refiners, which are of a class known only here."""
    kind: Any = GenericAlias(Mapping, (str, refiner))
    own: dict[str, Any] = {"refiners": (kind, Field(description="Each refiner's own recipe."))}
    name = f"{_camel(composition.id)}Recipe"
    return create_model(name, __base__=(RefinedRecipe, generator), __module__=__name__, **own)


def _camel(card_id: str) -> str:
    return "".join(word.capitalize() for word in card_id.split("-"))
