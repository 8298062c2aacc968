"""The loaded parts of an LTX-2 card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKLLTX2Audio, AutoencoderKLLTX2Video, LTX2VideoTransformer3DModel
from diffusers.pipelines.ltx2 import (
    LTX2LatentUpsamplerModel,
    LTX2TextConnectors,
    LTX2Vocoder,
    LTX2VocoderWithBWE,
)
from transformers import Gemma3ForConditionalGeneration, PreTrainedTokenizerBase

from mutoscope.models.common.loading import load_components
from mutoscope.models.ltx2.card import CARD
from mutoscope.platform.engine.sampling import FlowSchedule


def load(paths: Mapping[str, Path], *, device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """Load those components that `paths` names, each from its own folder. Raises InvalidFolder."""
    loaded = load_components(CARD.components, paths, device=device, dtype=dtype)
    if "tokenizer" in loaded:
        # As the pipeline does at every call: Gemma's prompts are padded in front.
        tokenizer = loaded["tokenizer"]
        tokenizer.padding_side = "left"
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
    return loaded


@dataclass(frozen=True, slots=True)
class Ltx2Components:
    """A typed view of the mapping that a builder receives; None for an upsampler that the folder lacks."""

    transformer: LTX2VideoTransformer3DModel
    vae: AutoencoderKLLTX2Video
    audio_vae: AutoencoderKLLTX2Audio
    vocoder: LTX2Vocoder | LTX2VocoderWithBWE
    text_encoder: Gemma3ForConditionalGeneration
    connectors: LTX2TextConnectors
    latent_upsampler: LTX2LatentUpsamplerModel | None
    tokenizer: PreTrainedTokenizerBase
    scheduler: FlowSchedule

    @classmethod
    def of(cls, components: Mapping[str, Any]) -> Ltx2Components:
        chosen: dict[str, Any] = {field.name: components.get(field.name) for field in fields(cls)}
        return cls(**chosen)
