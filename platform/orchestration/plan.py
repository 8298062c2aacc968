"""What a run is before anybody runs it: pinned weights, resolved parameters, and the key over all of it.

Everything that decides the output is in the key parts, and the key parts are stored with the run: a memo miss
explains itself field by field, and a replay needs nothing else.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from mutoscope.models.registry import get_card
from mutoscope.platform import ids
from mutoscope.platform.catalog import RunSpec
from mutoscope.platform.engine import numerics
from mutoscope.platform.engine.card import RECIPE, Card, Recipe
from mutoscope.platform.engine.request import Profile
from mutoscope.platform.engine.roles import role
from mutoscope.platform.engine.validation import check_seed
from mutoscope.platform.errors import InvalidParameter, UnknownReference
from mutoscope.platform.orchestration.importing import read_recipe
from mutoscope.platform.orchestration.launch_tags import check_priority
from mutoscope.platform.orchestration.runtime import Runtime
from mutoscope.platform.orchestration.selection import Pins, Weights, digests_of, select
from mutoscope.platform.refs import ArtifactRef

MEMO_DOMAIN = "mutoscope.memo/1"


@dataclass(frozen=True, slots=True)
class Origin:
    """Who asks for the run; recorded, and no part of the key."""

    workflow_run_id: str | None = None
    prefect_flow_run_id: str | None = None
    prefect_task_run_id: str | None = None


@dataclass(frozen=True, slots=True)
class Queueing:
    """How a run is queued and how long it may take; no part of the key. Of equal runs that share a
    computation, the first decides the limit and the most urgent the place.

    Attributes:
        priority: higher is claimed first.
        time_limit: seconds that one attempt may take on a worker; None: what the settings say.
    """

    priority: int = 0
    time_limit: float | None = None

    def __post_init__(self) -> None:
        check_priority(self.priority)
        if self.time_limit is not None and not 0 < self.time_limit < math.inf:
            raise InvalidParameter("time_limit", self.time_limit, "use a positive number of seconds")


def plan_run(
    runtime: Runtime,
    card_id: str,
    given: Mapping[str, Any],
    *,
    seed: int | None,
    profile: Profile = Profile.SERVE,
    origin: Origin = Origin(),
    weights: Weights = (),
    pins: Pins = MappingProxyType({}),
    queueing: Queueing = Queueing(),
    draw: Callable[[], int] | None = None,
) -> RunSpec:
    """The run of `card_id` at its live weights, apart from those that are selected.

    Args:
        given: the card's input slots (an `ArtifactRef`, or its text such as "image:3fa9") and parameters, by
            name. None means "not given".
        seed: 0 <= seed < 2**63, or None to draw one; a card that draws nothing takes none.
        weights: versions selected for this run; see `selection`.
        pins: digests that a workflow was started with, which `weights` goes before.
        draw: where a seed that is not given comes from; at random by default.

    Raises:
        UnknownCard, InvalidParameter: as the card judges the request.
        UnknownReference, AmbiguousReference: an input that the catalog cannot resolve, a version that is not
            there, or a card without weights.
    """
    card = get_card(card_id)
    values = {name: value for name, value in given.items() if value is not None}
    inputs = _inputs(runtime, card, values)
    pinned = {
        **digests_of(runtime.catalog.weights.live(card.weights_card)),
        **pins.get(card.weights_card, {}),
        **digests_of(select(runtime.catalog, card_id, weights)),
    }
    recipe = recipe_of(runtime, card, pinned)
    recipe.check_inputs(inputs)
    contract = runtime.catalog.workers.contract(card_id) or numerics.cpu_contract(runtime.settings.threads)
    key_parts = {
        "card": card.id,
        "card_digest": numerics.card_digest(card),
        "weights": pinned,
        "inputs": {slot: ref.digest for slot, ref in inputs.items()},
        "parameters": card.resolve(values, recipe, profile),
        "seed": _seed(card, seed, draw or draw_seed),
        "profile": profile.value,
        "numeric": contract,
    }
    return spec_of(runtime, key_parts, inputs, origin, queueing)


def spec_of(
    runtime: Runtime,
    key_parts: Mapping[str, Any],
    inputs: Mapping[str, ArtifactRef],
    origin: Origin,
    queueing: Queueing = Queueing(),
) -> RunSpec:
    """The run that key parts describe; both a fresh plan and a replay come through here."""
    return RunSpec(
        kind=get_card(key_parts["card"]).run_kind,
        card=key_parts["card"],
        card_digest=key_parts["card_digest"],
        contract=numerics.contract_digest(key_parts["numeric"]),
        parameters=dict(key_parts["parameters"]),
        seed=key_parts["seed"],
        inputs=dict(inputs),
        weights=dict(key_parts["weights"]),
        key_parts=dict(key_parts),
        memo_key=ids.digest(MEMO_DOMAIN, key_parts),
        profile=key_parts["profile"],
        workflow_run_id=origin.workflow_run_id,
        prefect_flow_run_id=origin.prefect_flow_run_id,
        prefect_task_run_id=origin.prefect_task_run_id,
        priority=queueing.priority,
        max_attempts=runtime.settings.max_attempts,
        time_limit_seconds=queueing.time_limit or runtime.settings.run_time_limit_seconds,
    )


def _inputs(runtime: Runtime, card: Card, values: dict[str, Any]) -> dict[str, ArtifactRef]:
    """Takes the card's input slots out of `values` and resolves them, by role."""
    inputs = {}
    for slot in card.inputs:
        value = values.pop(slot.name, None)
        if value is None:
            if slot.required:
                raise InvalidParameter(
                    slot.name, None, f"{card.id} needs an artifact of kind {slot.kind} here"
                )
            continue
        if not slot.many:
            inputs[slot.name] = _input(runtime, card, slot.name, slot.kind, value)
            continue
        if not isinstance(value, list | tuple) or not value:
            raise InvalidParameter(slot.name, value, f"use a list of one {slot.kind} or more")
        for ordinal, each in enumerate(value):
            name = role(slot, ordinal)
            inputs[name] = _input(runtime, card, name, slot.kind, each)
    return inputs


def _input(runtime: Runtime, card: Card, name: str, kind: str, value: Any) -> ArtifactRef:
    if not isinstance(value, ArtifactRef | str):
        raise InvalidParameter(name, value, f"use a reference such as {kind}:3fa9c1")
    ref = runtime.catalog.artifacts.resolve(value) if isinstance(value, str) else value
    if ref.kind != kind:
        raise InvalidParameter(name, str(ref), f"{card.id} needs an artifact of kind {kind} here")
    return ref


def recipe_of(runtime: Runtime, card: Card, weights: Mapping[str, str]) -> Recipe:
    """A card's recipe at weights, digest by component. Raises UnknownReference: a needed one is missing."""
    if not card.components:
        return card.recipe.model_validate({})
    needed = {part.name for part in card.components if not part.optional} | {RECIPE}
    missing = sorted(needed - set(weights))
    if missing:
        lacking = "has no weights" if not weights else f"has no {missing[0]}"
        owner = card.weights_card
        raise UnknownReference(f"card {owner} {lacking}: use `mutoscope weights import {owner} FOLDER`")
    return _read_recipe(runtime, card, weights[RECIPE])


@lru_cache(maxsize=64)
def _read_recipe(runtime: Runtime, card: Card, digest: str) -> Recipe:
    # A digest names its bytes for good, so what was read once need not be read again.
    return read_recipe(runtime.store, card, digest)


def _seed(card: Card, seed: int | None, draw: Callable[[], int]) -> int:
    """The run's seed. A card that draws nothing has 0, so that equal requests share one computation."""
    if card.seeded:
        return draw() if seed is None else check_seed(seed)
    if seed:
        raise InvalidParameter("seed", seed, f"leave it out: {card.id} draws nothing at random")
    return 0


def draw_seed() -> int:
    """A fresh seed, 0 <= seed < 2**32: short enough to read out loud, and exact in every JSON reader."""
    return secrets.randbelow(2**32)
