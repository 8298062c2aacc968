"""Folders of weights for the test card: writing and inspecting them, without torch."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from mutoscope.platform.engine.card import FolderSummary
from mutoscope.platform.errors import InvalidFolder
from tests.support.tinycard.card import TinyRecipe

WEIGHTS = "net/weights.safetensors"
CONFIG = "net/config.json"


def write_folder(folder: Path, *, seed: int = 0, **recipe: object) -> Path:
    """A folder whose matrix is drawn from `seed`."""
    (folder / "net").mkdir(parents=True)
    matrix = np.random.default_rng(seed).standard_normal((4, 4)).astype(np.float32)
    save_file({"matrix": matrix}, folder / WEIGHTS)
    (folder / CONFIG).write_text(json.dumps({"_class_name": "Matrix"}))
    defaults = {
        "height": 4,
        "width": 4,
        "num_inference_steps": 3,
        "guidance_scale": 1.0,
        "max_sequence_length": 1,
    }
    (folder / "recipe.json").write_text(json.dumps({**defaults, **recipe}))
    return folder


def inspect(folder: Path) -> FolderSummary:
    """Check a folder. Raises InvalidFolder."""
    for name in (WEIGHTS, CONFIG, "recipe.json"):
        if not (folder / name).is_file():
            raise InvalidFolder(f"{folder / name} is missing: copy the folder again from where it came")
    recipe = TinyRecipe.model_validate_json((folder / "recipe.json").read_bytes())
    return FolderSummary(folder, {"net": (CONFIG, WEIGHTS)}, recipe, {"net": "Matrix"})
