"""Loading the reader: RapidOCR over two models, on one thread so that it repeats itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mutoscope.models.reward.ocr.card import CARD
from mutoscope.models.reward.ocr.folder import EXTRA, model_file
from mutoscope.platform.errors import InvalidFolder, InvalidInput

if TYPE_CHECKING:
    import torch

MOST_SIDE = 960
"""Text is looked for at this size or less, pixels."""


class Line(NamedTuple):
    """A line of text, in reading order, with the recogniser's confidence."""

    text: str
    confidence: float


class Reader:
    """Finds and reads text. Holds nothing of any picture."""

    def __init__(self, detector: Path, recogniser: Path) -> None:
        try:
            import cv2
            from rapidocr import RapidOCR
        except ImportError as error:
            raise InvalidInput(
                f"{CARD.id} needs {error.name}, which is not installed here: {EXTRA}"
            ) from None
        cv2.setNumThreads(1)
        one_thread = {f"EngineConfig.onnxruntime.{pool}_op_num_threads": 1 for pool in ("intra", "inter")}
        # RapidOCR keeps the parts it is asked to run, so every call says them all.
        self._ocr = RapidOCR(
            params={
                **one_thread,
                "Global.log_level": "critical",
                # Upside-down text is not what was asked for.
                "Global.use_cls": False,
                "Global.text_score": 0.0,
                "Det.model_path": str(detector),
                "Rec.model_path": str(recogniser),
                # Pictures are enlarged here or not at all: RapidOCR's own rule makes small ones huge.
                "Det.limit_type": "max",
                "Det.limit_side_len": MOST_SIDE,
            }
        )

        # It opens a model when it first needs it; the files may be gone by then.
        blank = np.zeros((48, 96, 3), np.uint8)
        self._ocr(blank, use_det=True, use_cls=False, use_rec=False)
        self._ocr(blank, use_det=False, use_cls=False, use_rec=True)

    def read(self, image: NDArray[np.uint8]) -> list[Line]:
        """The lines of text in a picture, uint8 (H, W, 3) in RGB."""
        found = self._ocr(np.ascontiguousarray(image[:, :, ::-1]), use_det=True, use_cls=False, use_rec=True)
        if found.txts is None:
            return []
        return [Line(text, float(score)) for text, score in zip(found.txts, found.scores, strict=True)]


def load(paths: Mapping[str, Path], *, device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """Load the reader, which runs on the CPU whatever the card's device.

    Raises:
        InvalidFolder: a model does not load.
        InvalidInput: the libraries are not installed.
    """
    if "scorer" not in paths:
        return {}
    folder = paths["scorer"]
    try:
        return {"scorer": Reader(model_file(folder, "det"), model_file(folder, "rec"))}
    except (InvalidFolder, InvalidInput):
        raise
    except Exception as error:  # whatever ONNX Runtime says of a file that is no model
        reason = " ".join(str(error).split())[:200]
        raise InvalidFolder(
            f"{folder} does not load as OCR models ({reason}): take them from their source"
        ) from None
