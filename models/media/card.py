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


class ChartParameters(BaseModel):
    """How panels are laid out. They fill rows from left to right, the first row first."""

    model_config = ConfigDict(extra="forbid")

    columns: Annotated[int, Field(strict=True, ge=1, le=8)] = Field(2, description="Panels in a row.")
    panel_width: Annotated[int, Field(strict=True, ge=160, le=2048)] = Field(
        440, description="Of a panel, pixels."
    )
    panel_height: Annotated[int, Field(strict=True, ge=100, le=2048)] = Field(
        220, description="Of a panel, pixels."
    )


class StatisticsParameters(BaseModel):
    """Which pictures belong together."""

    model_config = ConfigDict(extra="forbid")

    groups: tuple[Annotated[int, Field(strict=True, ge=1)], ...] = Field(
        (),
        description="How many in a row were made of one prompt each, in order. Left out: all of them of one.",
    )


def _card(
    name: str, title: str, inputs: tuple[Slot, ...], outputs: Slot, parameters: type[BaseModel], module: str
) -> Card:
    return Card(
        id=name,
        title=title,
        components=(),
        inputs=inputs,
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
    (Slot("video", "video", "The clip; its sound is left aside."),),
    Slot("image", "image", "The frame, uint8 (H, W, 3)."),
    FrameParameters,
    "frame",
)
JOIN = _card(
    "video-join",
    "Videos one after another",
    (Slot("videos", "video", "Clips of one size, in order; their sound is left aside.", many=True),),
    Slot("video", "video", "All their frames."),
    JoinParameters,
    "join",
)
SHEET = _card(
    "contact-sheet",
    "Pictures in labelled rows and columns",
    (Slot("images", "image", "The pictures, in reading order.", many=True),),
    Slot("image", "image", "The sheet."),
    SheetParameters,
    "sheet",
)
CHARTS = _card(
    "line-charts",
    "Numbers as lines in labelled panels",
    (
        Slot(
            "series",
            "json",
            "A title, and panels with their lines; see `chart`.",
            examples=tuple(
                {"title": "reward", "panels": [{"lines": {"reward": [[0, 0.1], [1, last]]}}]}
                for last in (0.5, 0.9)
            ),
        ),
    ),
    Slot("image", "image", "The panels."),
    ChartParameters,
    "chart",
)
STATISTICS = _card(
    "picture-statistics",
    "How varied, sharp, colourful and dark pictures or videos are",
    (
        Slot(
            "images",
            "image",
            "Pictures, those of a prompt in a row.",
            required=False,
            many=True,
            in_example=True,
        ),
        Slot("videos", "video", "Clips, where they are no pictures.", required=False, many=True),
    ),
    Slot("statistics", "json", "Means by name; see `statistics`."),
    StatisticsParameters,
    "statistics",
)


def inspect(folder: Path) -> FolderSummary:
    """There are no weights, so no folder holds any."""
    raise InvalidFolder(f"{folder} cannot be imported for a card without weights: it is served as it is")


def load(paths: dict[str, Path], **_: Any) -> dict[str, Any]:
    """No components to load."""
    return {}
