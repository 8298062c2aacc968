"""A card: the declaration of a servable model. It holds no weights and imports no torch.

A family (a folder under `models/`) declares its card in `card.py` and names, by entrypoint, the code that
inspects a folder of weights (torch-free) and the code that builds the program (torch). Card ids are
kebab-case and share one namespace with workflow ids.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mutoscope.platform.engine import rollout
from mutoscope.platform.engine.request import Profile
from mutoscope.platform.errors import InvalidParameter

RECIPE = "recipe"
"""The stateless component that every card has besides those it declares: its folder's resolved recipe."""

SlotKind = Literal[
    "image", "video", "audio", "latent", "embedding", "trajectory", "reward", "weights", "text", "json"
]


@dataclass(frozen=True, slots=True)
class Slot:
    """A named input or output of a program.

    Attributes:
        kind: the artifact kind that fills it.
        profiles: those under which an output is filled; empty: all of them.
        many: an input of one artifact or more, in order; the program finds a list. Its artifacts have the
            roles ``name.0``, ``name.1`` and so on.
        examples: of an input whose kind nobody can make up, two values or more; see `example`.
        in_example: an optional input that an example request fills.
    """

    name: str
    kind: SlotKind
    description: str
    required: bool = True
    profiles: tuple[Profile, ...] = ()
    many: bool = False
    examples: tuple[Any, ...] = field(default=(), hash=False)
    in_example: bool = False


TRAJECTORY = Slot(
    "trajectory",
    "trajectory",
    "What the sampler did: latents at noise levels and log-probabilities of the stochastic steps.",
    profiles=(Profile.ROLLOUT,),
)
"""The further output of every card that can be rolled out."""


@dataclass(frozen=True, slots=True)
class ComponentSpec:
    """One part of a card. `weighted` parts carry tensors; the others (tokenizer, scheduler) only files."""

    name: str
    library: str
    classes: tuple[str, ...]
    weighted: bool = True
    optional: bool = False


class Recipe(BaseModel):
    """Generation defaults and limits of one folder of weights, read from its `recipe.json` and its configs.

    Families extend it. Everything here is pinned by digest in the memo key, as component `recipe`. A field
    nobody knows is refused: a misspelt default would otherwise be ignored in silence.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    height: int = Field(description="Default height, pixels.")
    width: int = Field(description="Default width, pixels.")
    sizes: tuple[tuple[int, int], ...] = Field(
        (), description="Allowed (height, width); empty: any multiple."
    )
    size_multiple: int = Field(16, ge=1, description="Height and width must be multiples of this, pixels.")
    num_inference_steps: int = Field(ge=1)
    guidance_scale: float = Field(
        ge=0, description="Classifier-free guidance g in u + g(c - u); 1 turns it off."
    )
    max_sequence_length: int = Field(ge=1, description="Prompt length, tokens.")
    negative_prompt: str = ""
    supports_guidance: bool = Field(
        True, description="False for weights distilled from guidance, which have no unconditional answer."
    )

    @property
    def needed_inputs(self) -> tuple[str, ...]:
        """Input slots that are optional on the card, but not for these weights. Families override it."""
        return ()

    def check_inputs(self, inputs: Mapping[str, Any]) -> None:
        """Refuse filled input slots, by name, that these weights cannot serve. Families extend it.

        Raises:
            InvalidParameter: names the slot and the remedy.
        """
        for name in self.needed_inputs:
            if inputs.get(name) is None:
                raise InvalidParameter(name, None, f"these weights begin with it; pass {name}=...")

    def check(self, values: Mapping[str, Any]) -> None:
        """Refuse resolved parameters, sizes apart, that these weights cannot serve. Families extend it.

        Raises:
            InvalidParameter: names the field, the value and what would be accepted.
        """
        scale = values.get("guidance_scale")
        if not self.supports_guidance and scale is not None and scale > 1:
            remedy = "use 1: these weights do not support classifier-free guidance"
            raise InvalidParameter("guidance_scale", scale, remedy)


@dataclass(frozen=True, slots=True)
class FolderSummary:
    """What an inspection found.

    Attributes:
        components: files by component, relative to `folder`.
        roots: folders of components that do not lie in one of their own name, relative to `folder`; several
            may share one.
    """

    folder: Path
    components: Mapping[str, tuple[str, ...]]
    recipe: Recipe
    classes: Mapping[str, str] = field(default_factory=dict)
    roots: Mapping[str, str] = field(default_factory=dict)

    def root(self, component: str) -> Path:
        """The folder a component is loaded from."""
        return self.folder / self.roots.get(component, component)


@dataclass(frozen=True, slots=True)
class Card:
    """A servable model, declared.

    Attributes:
        inputs, outputs: slots the program reads and fills. Inputs are artifacts; the rest are parameters.
        parameters: pydantic model of the request's parameters. A field that is None takes the recipe's value.
        recipe: the family's Recipe class.
        inspector: "module:function", `(Path) -> FolderSummary`; torch-free; raises InvalidFolder.
        loader: "module:function", `(Mapping[str, Path], *, device, dtype) -> Mapping[str, Any]`: loads those
            components that the mapping names, each from its own folder, wherever that lies; imports torch;
            raises InvalidFolder.
        builder: "module:function", `(BuildContext) -> Program`; imports torch.
        sources: packages and modules whose source text is part of the card digest, so that changed code is a
            changed key.
        profiles: what it can be run under.
        rollout_parameters: what a request may set beside `parameters` when it is a rollout; None: nothing.
        run_kind: what its runs are recorded as. A card without components has no weights to import; its
            recipe is its Recipe class's defaults.
        seeded: whether anything is drawn at random. If not, the seed is 0 in every key.
        weights_of: id of the card whose weight versions it runs, where those are not its own: a trainer has
            the components of the card that it trains. See `weights_card`.
    """

    id: str
    title: str
    components: tuple[ComponentSpec, ...]
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    parameters: type[BaseModel]
    recipe: type[Recipe]
    inspector: str
    loader: str
    builder: str
    sources: tuple[str, ...] = ()
    profiles: tuple[Profile, ...] = (Profile.SERVE,)
    rollout_parameters: type[BaseModel] | None = rollout.RolloutParameters
    run_kind: Literal["engine", "reward", "train_step"] = "engine"
    seeded: bool = True
    weights_of: str | None = None

    @property
    def weights_card(self) -> str:
        """The id under which its weight versions go."""
        return self.weights_of or self.id

    def inspect(self, folder: Path) -> FolderSummary:
        """Check a diffusers-format folder without importing torch. Raises InvalidFolder."""
        summary: FolderSummary = resolve_entrypoint(self.inspector)(folder)
        return summary

    def outputs_under(self, profile: Profile) -> tuple[Slot, ...]:
        """The output slots that a request of that profile fills."""
        return tuple(slot for slot in self.outputs if not slot.profiles or profile in slot.profiles)

    def resolve(
        self, parameters: Mapping[str, Any], recipe: Recipe, profile: Profile = Profile.SERVE
    ) -> dict[str, Any]:
        """Validate parameters and fill what is None from the recipe; the result is what the memo key holds.

        Raises:
            InvalidParameter: names the field, the value and what would be accepted.
        """
        if profile not in self.profiles:
            allowed = ", ".join(self.profiles)
            raise InvalidParameter("profile", str(profile), f"{self.id} runs under {allowed}")
        models = [self.parameters]
        if profile is Profile.ROLLOUT and self.rollout_parameters is not None:
            models.append(self.rollout_parameters)
        known = [name for model in models for name in model.model_fields]
        unknown = sorted(set(parameters) - set(known))
        if unknown:
            remedy = f"{self.id} takes {', '.join(known)}"
            raise InvalidParameter(unknown[0], parameters[unknown[0]], remedy)
        values = {name: value for model in models for name, value in _validated(model, parameters).items()}
        defaults = rollout.DEFAULTS if profile is Profile.ROLLOUT else {}
        for name, value in values.items():
            if value is None:
                values[name] = defaults.get(name, getattr(recipe, name, None))
        self._check_size(values, recipe)
        recipe.check(values)
        if profile is Profile.ROLLOUT and self._is_sampled:
            rollout.RolloutPlan.of(values, values["num_inference_steps"])
        return values

    @property
    def _is_sampled(self) -> bool:
        """Whether a rollout of it follows a schedule of noise levels."""
        own = self.rollout_parameters
        return own is not None and issubclass(own, rollout.RolloutParameters)

    def _check_size(self, values: Mapping[str, Any], recipe: Recipe) -> None:
        if "height" not in values or "width" not in values:
            return
        size = (values["height"], values["width"])
        if recipe.sizes and size not in recipe.sizes:
            allowed = ", ".join(f"{w}x{h}" for h, w in recipe.sizes)
            raise InvalidParameter(
                "size", f"{size[1]}x{size[0]}", f"{self.id} makes {allowed} (width x height)"
            )
        for name, value in zip(("height", "width"), size, strict=True):
            if value % recipe.size_multiple:
                raise InvalidParameter(name, value, f"use a multiple of {recipe.size_multiple}")


def _validated(model: type[BaseModel], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of one model, of parameters that may hold those of others too."""
    given = {name: value for name, value in parameters.items() if name in model.model_fields}
    try:
        return model.model_validate(given).model_dump()
    except ValidationError as error:
        raise invalid_parameter(error, given) from None


_REMEDIES = {
    "int_type": "use an integer",
    "int_parsing": "use an integer",
    "int_from_float": "use an integer",
    "float_type": "use a number",
    "float_parsing": "use a number",
    "finite_number": "use a finite number",
    "bool_type": "use true or false",
    "bool_parsing": "use true or false",
    "string_type": "use text",
    "string_too_short": "use at least {min_length} characters",
    "string_too_long": "use at most {max_length} characters",
    "too_short": "give {min_length} or more",
    "too_long": "give {max_length} at most",
    "greater_than": "use a number greater than {gt}",
    "greater_than_equal": "use {ge} or more",
    "less_than": "use a number less than {lt}",
    "less_than_equal": "use {le} or less",
}
"""What to do about the usual problems, in words; pydantic's own message says only what is wrong."""


def invalid_parameter(error: ValidationError, given: Mapping[str, Any]) -> InvalidParameter:
    """The first problem of a pydantic error as one line that names field, value and remedy."""
    first = error.errors(include_url=False)[0]
    name = ".".join(str(part) for part in first["loc"]) or "input"
    if first["type"] == "missing":
        return InvalidParameter(name, None, f"{name} is required; pass {name}=...")
    remedy = _remedy(first["type"], first["msg"], first.get("ctx", {}))
    return InvalidParameter(name, first.get("input", given.get(name)), remedy)


def _remedy(kind: str, message: str, context: Mapping[str, Any]) -> str:
    # Only our own texts are templates: a message may hold braces from what a person typed.
    return _REMEDIES[kind].format(**context) if kind in _REMEDIES else message


def resolve_entrypoint(entrypoint: str) -> Any:
    """Import "package.module:attribute"."""
    module, _, attribute = entrypoint.partition(":")
    return getattr(importlib.import_module(module), attribute)
