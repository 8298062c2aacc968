"""Whether a policy decays: what is seen in samples of fixed prompts and seeds, held against the beginning.

A reward can rise while pictures become alike, flat or dark, or while prompts that are not trained get worse.
So every evaluation takes readings, and limits say how far each may move from the first. No torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Factor = Annotated[float, Field(ge=1, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Limits(BaseModel):
    """How far readings may move from those at the training's beginning. A limit of None is none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    least_diversity: Share | None = Field(
        0.5, description="Share of the first diversity below which samples of a prompt have become alike."
    )
    least_edge_density: Share | None = Field(
        0.4, description="Share of the first edge density below which pictures have become flat."
    )
    most_edge_density: Factor | None = Field(
        3.0, description="Multiple of the first edge density above which pictures are noise."
    )
    least_colour_entropy: Share | None = Field(
        0.4, description="Share of the first colour entropy below which colours have gone."
    )
    most_dark_fraction: Amount | None = Field(
        0.4, description="By how much the share of dark pixels may grow."
    )
    most_held_out_drop: Amount | None = Field(
        0.2, description="By how much the mean score of prompts that are not trained may fall."
    )


@dataclass(frozen=True, slots=True)
class Readings:
    """What an evaluation reads; see `mutoscope.models.media.statistics`. None: nothing could be read.

    Attributes:
        held_out: mean score of samples of prompts that are not trained.
    """

    diversity: float | None
    edge_density: float | None
    colour_entropy: float | None
    dark_fraction: float | None
    held_out: float | None = None

    @classmethod
    def of(cls, statistics: Mapping[str, Any], held_out: float | None) -> Readings:
        """From what the card `picture-statistics` says, and the held-out score."""
        return cls(
            statistics["diversity"],
            statistics["edge_density"],
            statistics["colour_entropy"],
            statistics["dark_fraction"],
            held_out,
        )


@dataclass(frozen=True, slots=True)
class Breach:
    """A reading beyond its limit. `limit` is the value that would still have been allowed."""

    sentinel: str
    value: float | None
    limit: float
    first: float

    def __str__(self) -> str:
        now = "nothing" if self.value is None else f"{self.value:.4g}"
        return f"{self.sentinel} is {now}, its limit {self.limit:.4g} (it began at {self.first:.4g})"


def breaches(first: Readings, now: Readings, limits: Limits) -> list[Breach]:
    """Which readings are beyond their limits. What had no value at the beginning has no limit; what had one
    and has none any more is beyond it."""
    least = (
        ("diversity", first.diversity, now.diversity, limits.least_diversity),
        ("edge density", first.edge_density, now.edge_density, limits.least_edge_density),
        ("colour entropy", first.colour_entropy, now.colour_entropy, limits.least_colour_entropy),
    )
    found = [
        Breach(name, value, share * began, began)
        for name, began, value, share in least
        if share is not None and began is not None and (value is None or value < share * began)
    ]
    for name, began, value, most in (
        ("edge density", first.edge_density, now.edge_density, _times(first.edge_density, limits)),
        ("dark fraction", first.dark_fraction, now.dark_fraction, _more(first.dark_fraction, limits)),
    ):
        if began is not None and value is not None and most is not None and value > most:
            found.append(Breach(name, value, most, began))
    began, value = first.held_out, now.held_out
    if limits.most_held_out_drop is not None and began is not None:
        limit = began - limits.most_held_out_drop
        if value is None or value < limit:
            found.append(Breach("held-out score", value, limit, began))
    return found


def _times(began: float | None, limits: Limits) -> float | None:
    factor = limits.most_edge_density
    return None if began is None or factor is None else factor * began


def _more(began: float | None, limits: Limits) -> float | None:
    more = limits.most_dark_fraction
    return None if began is None or more is None else began + more
