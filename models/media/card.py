"""The cards of pixel operations. No torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from mutoscope.platform.engine.card import Card, FolderSummary, Recipe, Slot
from mutoscope.platform.errors import InvalidFolder

PACKAGE = "mutoscope.models.media"

Label = Annotated[str, Field(max_length=2000)]


class MediaRecipe(Recipe):
    """Nothing is generated here; the size is that of an example."""

    height: int = 64
    width: int = 64
    num_inference_steps: int = 1
    guidance_scale: float = 1.0
    max_sequence_length: int = 1


class FrameParameters(BaseModel):
    """Which frame."""

    model_config = ConfigDict(extra="forbid", strict=True)

    at: int = Field(-1, description="Index of the frame, from 0; counted from the end if negative.")


class JoinParameters(BaseModel):
    """How clips are put one after another."""

    model_config = ConfigDict(extra="forbid")

    fps: float = Field(
        gt=0, le=240, allow_inf_nan=False, description="Frames per second of the whole.", examples=[8]
    )
    shared_frames: Annotated[int, Field(strict=True, ge=0)] = Field(
        0,
        description="Frames with which each further clip repeats the end of the one before; left out there.",
    )


class SheetParameters(BaseModel):
    """How pictures are laid out. They fill rows from left to right, the first row first."""

    model_config = ConfigDict(extra="forbid")

    columns: Annotated[int, Field(strict=True, ge=1, le=64)] | None = Field(
        None, description="Pictures in a row. Left out: as many as there are rows, or one more."
    )
    column_labels: tuple[Label, ...] = Field(
        (), description="One above each column, or none. Drawn in Latin letters."
    )
    row_labels: tuple[Label, ...] = Field((), description="One beside each row, or none.")
    title: str = Field("", max_length=2000, description="Above everything.")
    cell: Annotated[int, Field(strict=True, ge=16, le=1024)] = Field(
        192,
        description="Pixels of a picture's longer side. Small ones are enlarged by a whole factor up to it.",
    )


def _card(
    name: str, title: str, inputs: Slot, outputs: Slot, parameters: type[BaseModel], module: str
) -> Card:
    return Card(
        id=name,
        title=title,
        components=(),
        inputs=(inputs,),
        outputs=(outputs,),
        parameters=parameters,
        recipe=MediaRecipe,
        inspector=f"{__name__}:inspect",
        loader=f"{__name__}:load",
        builder=f"{PACKAGE}.{module}:build",
        sources=(PACKAGE,),
        seeded=False,
    )


FRAME = _card(
    "video-frame",
    "One frame of a video as a picture",
    Slot("video", "video", "The clip; its sound is left aside."),
    Slot("image", "image", "The frame, uint8 (H, W, 3)."),
    FrameParameters,
    "frame",
)
JOIN = _card(
    "video-join",
    "Videos one after another",
    Slot("videos", "video", "Clips of one size, in order; their sound is left aside.", many=True),
    Slot("video", "video", "All their frames."),
    JoinParameters,
    "join",
)
SHEET = _card(
    "contact-sheet",
    "Pictures in labelled rows and columns",
    Slot("images", "image", "The pictures, in reading order.", many=True),
    Slot("image", "image", "The sheet."),
    SheetParameters,
    "sheet",
)


def inspect(folder: Path) -> FolderSummary:
    """There are no weights, so no folder holds any."""
    raise InvalidFolder(f"{folder} cannot be imported for a card without weights: it is served as it is")


def load(paths: dict[str, Path], **_: Any) -> dict[str, Any]:
    """No components to load."""
    return {}
