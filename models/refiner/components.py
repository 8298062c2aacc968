"""The loaded parts of a refiner."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from mutoscope.models.common.loading import load_components
from mutoscope.models.refiner.card import CARD


def load(paths: Mapping[str, Path], *, device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """Load those components of the card that `paths` names. Raises InvalidFolder."""
    return load_components(CARD.components, paths, device=device, dtype=dtype)
