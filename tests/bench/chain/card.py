"""The step as a card of ours: no weights, text in and text out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from mutoscope.platform.engine.card import Card, FolderSummary, Recipe, Slot
from mutoscope.platform.engine.loop import BuildContext, ComponentNode, Program
from mutoscope.platform.engine.request import Output
from mutoscope.platform.errors import InvalidFolder
from tests.bench.chain import link

_NAME = __name__


class LinkRecipe(Recipe):
    """Nothing is generated: the common fields mean nothing here."""

    height: int = 8
    width: int = 8
    num_inference_steps: int = 1
    guidance_scale: float = 1.0
    max_sequence_length: int = 1


class LinkParameters(BaseModel):
    """Where in which chain."""

    model_config = ConfigDict(extra="forbid")

    position: int = Field(0, ge=0, description="How many steps came before.")
    start: str = Field("", description="What the first step takes.")


LINK = Card(
    id="chain-link",
    title="One step of a chain",
    components=(),
    inputs=(Slot("previous", "text", "The artifact of the step before.", required=False),),
    outputs=(Slot("artifact", "text", "64 KiB."),),
    parameters=LinkParameters,
    recipe=LinkRecipe,
    inspector=f"{_NAME}:inspect",
    loader=f"{_NAME}:load",
    builder=f"{_NAME}:build",
    sources=("tests.bench.chain",),
    seeded=False,
)


def inspect(folder: Path) -> FolderSummary:
    """There are no weights."""
    raise InvalidFolder(f"{folder} cannot be imported for a card without weights")


def load(paths: Mapping[str, Path], **_: Any) -> dict[str, Any]:
    """No components."""
    return {}


def build(context: BuildContext) -> Program:
    """The card's program."""
    return Program(
        nodes=(ComponentNode("link", "text", _run),),
        outputs=lambda slots: {"artifact": Output("text", slots["text"])},
    )


def _run(slots: Mapping[str, Any]) -> dict[str, Any]:
    parameters = slots["request"].parameters
    previous = slots.get("previous")
    before = parameters["start"] if previous is None else previous
    return {"text": link.step(before.encode(), parameters["position"]).decode()}
