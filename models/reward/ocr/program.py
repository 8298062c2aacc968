"""The OCR scorer: one step a frame, since the reader takes one picture at a time.

The score is the similarity of what is read to what is wanted; of a clip, its mean over the frames. A picture
without text scores 0: that is what was read in it, and not a failure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from PIL import Image

from mutoscope.models.reward.common.loop import KIND, Unscorable, Verdict, reward_program
from mutoscope.models.reward.common.sample import Frames, count_of, frames_of
from mutoscope.models.reward.ocr.card import CARD, OcrRecipe
from mutoscope.models.reward.ocr.components import MOST_SIDE, Line, Reader
from mutoscope.models.reward.ocr.distance import normalised, similarity
from mutoscope.models.reward.ocr.folder import installed
from mutoscope.platform.engine.loop import BuildContext, Program, WorkPlan
from mutoscope.platform.engine.request import Request
from mutoscope.platform.errors import InvalidFolder, InvalidParameter

COST = 10.0
"""Of reading a frame, next to the scene scorer's 1."""


def build(context: BuildContext) -> Program:
    """The card's program. Raises InvalidFolder where other releases are installed than were pinned."""
    recipe = context.recipe
    assert isinstance(recipe, OcrRecipe)
    here = installed()
    for name, release in recipe.releases.items():
        if here.get(name) != release:
            raise InvalidFolder(
                f"{CARD.id} was imported with {name} {release}, and here is {here.get(name, 'none')}: "
                f"import its folder again, or install {name}=={release}"
            )
    return reward_program(CARD.id, OcrReward(context.components["scorer"], recipe), check=_check_text)


def _check_text(request: Request) -> None:
    text = request.parameters["text"]
    if not normalised(text):
        raise InvalidParameter("text", text, "say what should be written, not white space")


class OcrReward:
    """Reads frames and compares."""

    def __init__(self, reader: Reader, recipe: OcrRecipe) -> None:
        self.reader, self.recipe = reader, recipe

    def count(self, request: Request) -> int:
        return count_of(request)

    def steps(self, slots: Mapping[str, Any]) -> Sequence[WorkPlan]:
        request: Request = slots["request"]
        return [WorkPlan(KIND, (), partial(self.read, request, at), COST) for at in range(count_of(request))]

    def read(self, request: Request, at: int) -> list[Line] | str:
        """The lines of one frame; where the reader fails at these pixels, why."""
        image = enlarged(frames_of(request)[at], self.recipe.least_side)
        try:
            return self.reader.read(image)
        except MemoryError:
            raise
        except (
            Exception
        ) as error:  # the reader's own checks, OpenCV's and ONNX Runtime's: of the pixels alone
            return f"the reader failed: {type(error).__name__}: {str(error)[-300:]}"

    def conclude(self, slots: Mapping[str, Any], results: Sequence[list[Line] | str]) -> Verdict:
        parameters = slots["request"].parameters
        match_case = parameters["match_case"]
        wanted = normalised(parameters["text"], match_case=match_case)
        texts, similarities = [], []
        for lines in results:
            if isinstance(lines, str):
                raise Unscorable(lines)
            sure = [line.text for line in lines if line.confidence >= self.recipe.confidence]
            texts.append(" ".join(sure))
            similarities.append(similarity(normalised(texts[-1], match_case=match_case), wanted))
        return Verdict(float(np.mean(similarities)), {"read": texts, "similarity": similarities})


def enlarged(frame: Frames, least_side: int) -> Frames:
    """A picture (H, W, 3) whose shorter side has `least_side` pixels or more, unless that makes the longer
    one larger than text is looked for at."""
    image = Image.fromarray(np.ascontiguousarray(frame))
    factor = min(-(-least_side // min(image.size)), MOST_SIDE // max(image.size))
    if factor < 2:
        return frame
    return np.asarray(image.resize((image.width * factor, image.height * factor), Image.Resampling.LANCZOS))
