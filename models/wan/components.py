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

FULL_PRECISION = ("vae", "image_encoder")
"""Kept in float32 whatever the card's dtype: in half precision they visibly lose the given image."""


def load(paths: Mapping[str, Path], *, device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """Load those components that `paths` names, each from its own folder. Raises InvalidFolder."""
    precise = [spec for spec in COMPONENTS if spec.name in FULL_PRECISION]
    others = [spec for spec in COMPONENTS if spec.name not in FULL_PRECISION]
    loaded = load_components(precise, paths, device=device, dtype=torch.float32)
    return loaded | load_components(others, paths, device=device, dtype=dtype)


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
