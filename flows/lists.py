"""The annotated types of workflow parameters that hold several values, and seeds in a row.

In a form they are lists. On a command line they are written as JSON, or with bars between the items:
``prompts="a red circle | a blue square"``.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StringConstraints
from pydantic_core import PydanticCustomError

from mutoscope.flows.parameters import MAX_PROMPT

MOST = 64
"""Items of a list."""

SEED_LIMIT = 2**63


def _items(value: Any) -> Any:
    """A text as the items it spells."""
    if not isinstance(value, str):
        return value
    if not value.lstrip().startswith("["):
        return [item.strip() for item in value.split("|")]
    try:
        return json.loads(value)
    except ValueError:
        raise PydanticCustomError("spelling", 'use a JSON list such as ["a", "b"], or a | b') from None


Line = Annotated[str, StringConstraints(strip_whitespace=True), Field(min_length=1, max_length=MAX_PROMPT)]

Prompts = Annotated[
    list[Line],
    BeforeValidator(_items),
    Field(
        title="Prompts",
        min_length=1,
        max_length=MOST,
        description="What to show, in words: one prompt or more.",
    ),
]

Versions = Annotated[
    list[Line],
    BeforeValidator(_items),
    Field(
        title="Weight versions",
        max_length=8,
        description="Weights to compare, such as flux-t2i/transformer@12 or flux-t2i@candidate. Empty: those "
        "that are live.",
    ),
]

Count = Annotated[
    int,
    Field(
        title="Count",
        strict=True,
        ge=1,
        le=MOST,
        description="How many are made of each prompt, with seeds in a row from the first on.",
    ),
]

AtOnce = Annotated[
    int,
    Field(
        title="At once",
        strict=True,
        ge=1,
        le=MOST,
        description="How many are under way at a time: more fill batches, fewer leave room for others.",
    ),
]


def seeds_from(seed: int | None, count: int) -> list[int]:
    """`count` seeds in a row from a workflow's own, 0 <= s < 2**63; after the last comes 0."""
    assert seed is not None, "a workflow is called with a seed: one that is not given is drawn"
    return [(seed + step) % SEED_LIMIT for step in range(count)]
