"""The loaded parts of a Wan card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKLWan, WanTransformer3DModel
from transformers import CLIPImageProcessorPil, CLIPVisionModel, PreTrainedTokenizerBase, UMT5EncoderModel

from mutoscope.models.common.loading import load_components
from mutoscope.models.wan.card import COMPONENTS
from mutoscope.platform.engine.sampling import FlowSchedule
from mutoscope.platform.errors import InvalidFolder

FULL_PRECISION = ("vae", "image_encoder")
"""Kept in float32 whatever the card's dtype: in half precision they visibly lose the given image."""


def load(paths: Mapping[str, Path], *, device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """Load those components that `paths` names, each from its own folder. Raises InvalidFolder."""
    shared = [spec for spec in COMPONENTS if spec.name != "image_processor"]
    precise = [spec for spec in shared if spec.name in FULL_PRECISION]
    others = [spec for spec in shared if spec.name not in FULL_PRECISION]
    loaded = load_components(precise, paths, device=device, dtype=torch.float32)
    loaded |= load_components(others, paths, device=device, dtype=dtype)
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


@dataclass(frozen=True, slots=True)
class WanComponents:
    """A typed view of the mapping that a builder receives; None for what the folder does not have."""

    transformer: WanTransformer3DModel
    transformer_2: WanTransformer3DModel | None
    vae: AutoencoderKLWan
    text_encoder: UMT5EncoderModel
    tokenizer: PreTrainedTokenizerBase
    image_encoder: CLIPVisionModel | None
    image_processor: CLIPImageProcessorPil | None
    scheduler: FlowSchedule | Mapping[str, Any]

    @classmethod
    def of(cls, components: Mapping[str, Any]) -> WanComponents:
        chosen: dict[str, Any] = {field.name: components.get(field.name) for field in fields(cls)}
        return cls(**chosen)
