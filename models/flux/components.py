"""The loaded parts of a FLUX card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKL, FluxTransformer2DModel
from transformers import CLIPTextModel, PreTrainedTokenizerBase, T5EncoderModel

from mutoscope.models.common.loading import load_components
from mutoscope.models.flux.card import CARD
from mutoscope.platform.engine.sampling import FlowSchedule


def load(paths: Mapping[str, Path], *, device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """Load every component of the card from its own folder. Raises InvalidFolder."""
    return load_components(CARD.components, paths, device=device, dtype=dtype)


@dataclass(frozen=True, slots=True)
class FluxComponents:
    """A typed view of the mapping that a builder receives."""

    transformer: FluxTransformer2DModel
    vae: AutoencoderKL
    text_encoder: CLIPTextModel
    text_encoder_2: T5EncoderModel
    tokenizer: PreTrainedTokenizerBase
    tokenizer_2: PreTrainedTokenizerBase
    scheduler: FlowSchedule

    @classmethod
    def of(cls, components: Mapping[str, Any]) -> FluxComponents:
        return cls(**{field.name: components[field.name] for field in fields(cls)})
