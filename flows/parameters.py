"""The annotated types of workflow parameters. Each carries its limits and the words that the UI's form shows.

A value left empty (None) takes the recipe's: what the weights were trained for.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints
from pydantic_core import PydanticCustomError

from mutoscope.platform.orchestration.kinds import Image, full_reference
from mutoscope.platform.refs import ArtifactRef

MAX_PROMPT = 2000
_SIZE = r"^[1-9]\d{0,4}x[1-9]\d{0,4}$"
_IMAGE = r"^(image:)?[0-9a-fA-F]{4,64}$"
_VIDEO = r"^(video:)?[0-9a-fA-F]{4,64}$"


def _spelled(pattern: str, remedy: str) -> BeforeValidator:
    """Refuses text of another shape in words, where a regular expression would be shown instead."""

    def check(value: Any) -> Any:
        if isinstance(value, str) and not re.fullmatch(pattern, value):
            raise PydanticCustomError("spelling", remedy)
        return value

    return BeforeValidator(check)


def _full_reference(value: Any) -> Any:
    return full_reference(value) if isinstance(value, ArtifactRef) else value


def _from_json(value: Any) -> Any:
    """A JSON object written as text, as a command line gives it."""
    if not isinstance(value, str):
        return value
    try:
        given = json.loads(value)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise PydanticCustomError("spelling", 'use a JSON object such as {"num_inference_steps": 4}')
    return given


Prompt = Annotated[
    str,
    StringConstraints(strip_whitespace=True),
    Field(
        title="Prompt",
        min_length=1,
        max_length=MAX_PROMPT,
        description="What to show, in words: “a red circle left of a blue square”.",
    ),
]

NegativePrompt = Annotated[
    str | None,
    Field(
        title="Negative prompt",
        max_length=MAX_PROMPT,
        description="What to steer away from. Empty: the recipe's.",
    ),
]

Seed = Annotated[
    int | None,
    Field(
        title="Seed",
        strict=True,
        ge=0,
        le=2**63 - 1,
        description="The same seed makes the same result, bit for bit. Empty: one is drawn and recorded.",
    ),
]

Size = Annotated[
    str | None,
    _spelled(_SIZE, "use width x height in pixels, such as 64x64"),
    Field(
        title="Size",
        # For the form only: pydantic cannot apply a pattern to None, and `_spelled` has checked it.
        json_schema_extra={"pattern": _SIZE},
        description="Width x height in pixels, such as 64x64. Empty: the recipe's.",
    ),
]

Steps = Annotated[
    int | None,
    Field(
        title="Steps",
        strict=True,
        ge=1,
        le=1000,
        description="Denoising steps: more is slower and finer. Empty: the recipe's.",
    ),
]

VideoSteps = Annotated[
    Steps,
    Field(
        title="Video steps", description="Denoising steps of the video model. Empty: as many as `steps` says."
    ),
]

Guidance = Annotated[
    float | None,
    Field(
        title="Guidance",
        ge=0,
        le=100,
        allow_inf_nan=False,
        description="How closely to follow the prompt; 1 switches guidance off. Empty: the recipe's.",
    ),
]

Frames = Annotated[
    int | None,
    Field(
        title="Frames", strict=True, ge=1, le=10_000, description="Length of the video. Empty: the recipe's."
    ),
]

ImageReference = Annotated[
    Image,
    Field(
        title="Image",
        description="An image in the catalog: image:3fa9c1d2e4f5, or any unique beginning of it.",
    ),
]


OptionalImage = Annotated[
    str | None,
    _spelled(_IMAGE, "use a reference such as image:3fa9c1d2e4f5"),
    BeforeValidator(_full_reference),
    Field(
        title="Image",
        json_schema_extra={"artifact": "image", "pattern": _IMAGE},
        description="An image in the catalog, such as image:3fa9c1d2e4f5. Empty where a video is given.",
    ),
]

OptionalVideo = Annotated[
    str | None,
    _spelled(_VIDEO, "use a reference such as video:3fa9c1d2e4f5"),
    BeforeValidator(_full_reference),
    Field(
        title="Video",
        json_schema_extra={"pattern": _VIDEO},
        description="A video in the catalog, such as video:3fa9c1d2e4f5. Empty where an image is given.",
    ),
]

Sound = Annotated[
    bool,
    Field(title="Sound", description="Make the sound, too. Without it the video is made by itself."),
]

SoundGuidance = Annotated[
    float | None,
    Field(
        title="Sound guidance",
        ge=0,
        allow_inf_nan=False,
        description="Guidance scale of the sound. 1 and below turn it off. Empty: the recipe's.",
    ),
]

ServedCard = Annotated[
    str,
    Field(title="Card", description="Which card to run; `mutoscope cards` lists them."),
]

OptionalPrompt = Annotated[
    str | None,
    StringConstraints(strip_whitespace=True),
    Field(title="Prompt", max_length=MAX_PROMPT, description="Empty where the card takes no words."),
]

CardParameters = Annotated[
    dict[str, Any] | None,
    BeforeValidator(_from_json),
    Field(
        title="Parameters",
        description="The card's other parameters as JSON, such as "
        '{"num_inference_steps": 4}; `mutoscope cards CARD` lists them.',
    ),
]

RewardCard = Annotated[
    Literal["reward-scene", "reward-ocr", "reward-clip", "scene-check"],
    Field(
        title="Reward",
        description="reward-scene: does it show the starter scene? reward-ocr: is the text written in it? "
        "reward-clip: how near is it to the words? scene-check: does it show the scene, judged by its pixels "
        "alone?",
    ),
]

Target = Annotated[
    str,
    StringConstraints(strip_whitespace=True),
    Field(
        title="Prompt",
        min_length=1,
        max_length=MAX_PROMPT,
        description="What the sample is held against: a prompt, or the text that reward-ocr should read.",
    ),
]


Approve = Annotated[
    bool,
    Field(
        title="Ask before the video",
        description="Wait for a person who says whether the picture is worth a video: on this run's page, or "
        "with `mutoscope approve`.",
    ),
]


def height_and_width(size: str | None) -> dict[str, Any]:
    """A `Size` as the parameters that cards take."""
    if size is None:
        return {"height": None, "width": None}
    width, _, height = size.partition("x")
    return {"height": int(height), "width": int(width)}
