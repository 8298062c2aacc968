"""What rollouts are asked for, and the annotated types of the forms around it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from mutoscope.flows.lists import Line
from mutoscope.flows.parameters import ServedCard

MOST_ASKS = 10_000
"""Prompts of one collection."""

ImageText = Annotated[str, Field(pattern=r"^(image:)?[0-9a-fA-F]{4,64}$")]


class Ask(BaseModel):
    """A prompt, and what goes with it.

    Attributes:
        target: what samples are held against, such as the full caption of a terse prompt; None: the prompt.
        images: for a card that begins with a picture: one for all samples, or one for each.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: Line
    target: Line | None = None
    images: tuple[ImageText, ...] = ()

    @property
    def against(self) -> str:
        """What rewards hold the samples against."""
        return self.target or self.prompt


def asks_of(value: Any) -> Any:
    """Texts as asks, alone or in a list, ``a | b`` or JSON; whatever else it is stays for pydantic."""
    if isinstance(value, str):
        value = _read(value) if value.lstrip().startswith("[") else value.split("|")
    if isinstance(value, list | tuple):
        return [{"prompt": each} if isinstance(each, str) else each for each in value]
    return value


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        remedy = 'use a JSON list such as ["a", {"prompt": "b", "target": "c"}], or a | b'
        raise PydanticCustomError("spelling", remedy) from None


def _weighted(value: Any) -> Any:
    """Reward cards by name alone count once each."""
    if isinstance(value, str):
        value = _read_mapping(value) if value.lstrip().startswith("{") else value.split("|")
    if isinstance(value, list | tuple):
        return {str(each).strip(): 1.0 for each in value}
    return value


def _read_mapping(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise PydanticCustomError("spelling", 'use a JSON object such as {"reward-scene": 1}') from None


def from_json(value: Any) -> Any:
    """A JSON object written as text; whatever else it is stays for pydantic."""
    return _read_mapping(value) if isinstance(value, str) else value


Asks = Annotated[
    list[Ask],
    BeforeValidator(asks_of),
    Field(
        title="Prompts",
        min_length=1,
        max_length=MOST_ASKS,
        description="One group of samples is made of each: a prompt, or a prompt with the target that "
        "rewards hold its samples against.",
    ),
]

Samples = Annotated[
    int,
    Field(title="Samples", strict=True, ge=2, le=256, description="Samples in a group."),
]

Rewards = Annotated[
    Mapping[str, Annotated[float, Field(allow_inf_nan=False)]],
    BeforeValidator(_weighted),
    Field(
        title="Rewards",
        min_length=1,
        description="Reward cards and their weights in the score, such as "
        '{"reward-scene": 1, "reward-clip": 0.5}.',
    ),
]

RolloutCard = Annotated[
    ServedCard,
    Field(title="Card", description="Which card to roll out: one whose rollouts are captured."),
]

Laws = Annotated[
    list[str],
    BeforeValidator(lambda value: value.split("|") if isinstance(value, str) else value),
    Field(
        title="Laws",
        min_length=1,
        description="How steps in the window are drawn: flow-sde, cps, or ode. Of several, each group draws "
        "one.",
    ),
]

StageParameters = Annotated[
    Mapping[str, Any] | None,
    BeforeValidator(from_json),
    Field(
        title="Parameters",
        description="The card's other parameters as JSON, those of rollouts included, such as "
        '{"num_inference_steps": 8, "noise_scale": 0.7, "window_size": 2}.',
    ),
]

Selected = Annotated[
    list[Line],
    BeforeValidator(lambda value: value.split("|") if isinstance(value, str) else value),
    Field(
        title="Weights",
        max_length=16,
        description="Versions to sample from, such as flux-t2i@mine or flux-t2i/transformer@12. Others are "
        "live.",
    ),
]

Unrefined = Annotated[
    int,
    Field(
        title="Unrefined",
        strict=True,
        ge=0,
        le=256,
        description="Samples of each group that are drawn from the prompt as it is. Only for cards with "
        "refiners.",
    ),
]

Branches = Annotated[
    list[Annotated[int, Field(strict=True, ge=1, le=64)]],
    Field(
        title="Branches",
        max_length=8,
        description="How many ways each refiner continues each text, in their order. Empty: every sample is "
        "refined by itself.",
    ),
]

Refills = Annotated[
    int,
    Field(
        title="Refills",
        strict=True,
        ge=0,
        le=256,
        description="How many samples without a score are sampled again, with other seeds, in each group.",
    ),
]

Iteration = Annotated[
    int, Field(title="Iteration", strict=True, ge=0, description="Which of the training, from 0 on.")
]


def limit(title: str, description: str) -> Any:
    """The field of a limit that may be left empty."""
    return Field(title=title, gt=0, description=description)


MostGroups = Annotated[int | None, limit("Most groups", "Groups made at most. Empty: one for each prompt.")]
MostSamples = Annotated[
    int | None, limit("Most samples", "Samples made at most, refills left aside. Empty: as many as asked.")
]
QueueSeconds = Annotated[
    float | None,
    limit("Queue seconds", "How long a rollout may wait for a worker. Empty: as long as it takes."),
]
ScoreSeconds = Annotated[
    float | None, limit("Score seconds", "How long a score may take, waiting included. Empty: any time.")
]
Follow = Annotated[
    str | None,
    Field(
        title="Follow",
        description="Alias of a training's head. Rollouts stop when it is too far ahead of their versions.",
    ),
]
MaxStaleness = Annotated[
    int,
    Field(title="Most staleness", strict=True, ge=0, description="Versions that the head may be ahead."),
]
