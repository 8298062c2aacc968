"""Loading a CLIP model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import CLIPImageProcessorPil

from mutoscope.models.common.loading import load_components
from mutoscope.models.reward.clip.card import CARD
from mutoscope.platform.errors import InvalidFolder


def load(paths: Mapping[str, Path], *, device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """Load every component from its own folder. Raises InvalidFolder."""
    specs = [spec for spec in CARD.components if spec.name != "image_processor"]
    loaded = load_components(specs, paths, device=device, dtype=dtype)
    if "image_processor" in paths:
        loaded["image_processor"] = load_image_processor(paths["image_processor"])
    return loaded


def load_image_processor(path: Path) -> CLIPImageProcessorPil:
    """CLIP's resize, crop and normalisation; on PIL, so that pixels never depend on torchvision."""
    try:
        return CLIPImageProcessorPil.from_pretrained(path, local_files_only=True)
    except (OSError, ValueError) as error:
        raise InvalidFolder(
            f"{path} does not load as an image processor ({error}): take it from its source"
        ) from None
