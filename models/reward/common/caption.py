"""The text that starter scenes are held against: refused where it is asked for if it means no scene."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from mutoscope.models.starter.grammar import CaptionError, parse

REMEDY = "say a starter scene, such as 'a red circle left of a blue square, drifting right'"


def _means_a_scene(text: str) -> str:
    try:
        parse(text)
    except CaptionError:
        raise PydanticCustomError("caption", REMEDY) from None
    return text


Caption = Annotated[str, AfterValidator(_means_a_scene)]
"""A text of the starter grammar."""
