"""The loaded parts of a composed card. Imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from mutoscope.models.registry import get_card
from mutoscope.models.unified.card import MULTI_EXPERT, UNIRL_QWENFLUX
from mutoscope.models.unified.composition import REFINER, Composition, component_names
from mutoscope.platform.engine.card import Card, resolve_entrypoint


def load(
    composition: Composition, paths: Mapping[str, Path], *, device: torch.device, dtype: torch.dtype
) -> dict[str, Any]:
    """Load those components that `paths` names, each by the card of its part. Raises InvalidFolder."""
    generator, refiner = get_card(composition.generator), get_card(REFINER)
    parts: list[tuple[Card, dict[str, str]]] = [(generator, {c.name: c.name for c in generator.components})]
    parts += [(refiner, component_names(refiner, part)) for part in composition.refiners]
    loaded: dict[str, Any] = {}
    for card, names in parts:
        wanted = {name: paths[outer] for name, outer in names.items() if outer in paths}
        if wanted:
            made = resolve_entrypoint(card.loader)(wanted, device=device, dtype=dtype)
            loaded |= {names[name]: component for name, component in made.items()}
    return loaded


load_unirl_qwenflux = partial(load, UNIRL_QWENFLUX)
load_multi_expert = partial(load, MULTI_EXPERT)
