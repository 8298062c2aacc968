"""Where OCR models are, and which libraries read with them. Neither is imported here.

The two ONNX models are a component like any other: stored, versioned and pinned by digest. What the digest
cannot hold is the code around them, so its releases are part of the recipe, which is pinned too: an upgrade
changes the memo key by a new import, and a worker with other releases refuses instead of scoring.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path

from mutoscope.models.common.folder import read_recipe
from mutoscope.models.reward.ocr.card import CARD, OcrRecipe
from mutoscope.platform.engine.card import FolderSummary
from mutoscope.platform.errors import InvalidFolder, InvalidInput

EXTRA = "install it with: pip install 'mutoscope[ocr]'"

LIBRARIES = ("rapidocr", "onnxruntime", "opencv-python-headless", "pyclipper", "shapely")
"""Distributions whose release can change what is read; NumPy and Pillow are in every run's contract."""


def inspect(folder: Path) -> FolderSummary:
    """Check a folder with a detector and a recogniser, ``*_det_*.onnx`` and ``*_rec_*.onnx``.

    Raises:
        InvalidFolder: one is missing, or there are several.
        InvalidInput: the libraries are not installed.
    """
    if not folder.is_dir():
        raise InvalidFolder(f"{folder} is not a folder: give one with the ONNX models of PP-OCR")
    names = (model_file(folder, "det").name, model_file(folder, "rec").name)
    recipe = read_recipe(folder, OcrRecipe, {"releases": installed()})
    return FolderSummary(
        folder=folder,
        components={"scorer": names},
        recipe=recipe,
        classes={"scorer": "RapidOCR"},
        roots={"scorer": "."},
    )


def model_file(folder: Path, part: str) -> Path:
    """The detector (``det``) or the recogniser (``rec``) in a folder. Raises InvalidFolder."""
    found = sorted(folder.glob(f"*_{part}_*.onnx"))
    if len(found) != 1:
        raise InvalidFolder(f"{folder} holds {len(found)} files *_{part}_*.onnx: give a folder with one")
    return found[0]


def installed() -> dict[str, str]:
    """Release of each library that reads. Raises InvalidInput where one is missing."""
    releases = {}
    for name in LIBRARIES:
        try:
            releases[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            raise InvalidInput(f"{CARD.id} needs {name}, which is not installed here: {EXTRA}") from None
    return releases


def packaged_folder() -> Path | None:
    """The models that RapidOCR's distribution brings; None where the extra is not installed."""
    try:
        installed()
    except InvalidInput:
        return None
    spec = importlib.util.find_spec("rapidocr")
    return None if spec is None or spec.origin is None else Path(spec.origin).with_name("models")
