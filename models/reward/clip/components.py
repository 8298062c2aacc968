"""Loading a CLIP model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from mutoscope.models.common.loading import load_components
from mutoscope.models.reward.clip.card import CARD


def load(paths: Mapping[str, Path], *, device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """Load every component from its own folder. Raises InvalidFolder."""
    return load_components(CARD.components, paths, device=device, dtype=dtype)
