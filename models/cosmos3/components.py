"""The loaded parts of a Cosmos3 card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKLWan, Cosmos3OmniTransformer
from transformers import PreTrainedTokenizerBase

from mutoscope.models.common.loading import load_components
from mutoscope.models.cosmos3.card import CARD


def load(paths: Mapping[str, Path], *, device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """Load those components of the card that `paths` names, each from its own folder. Raises InvalidFolder.

    The VAE is kept in float32 whatever the card's dtype, as Wan's is.
    """
    precise = [spec for spec in CARD.components if spec.name == "vae"]
    others = [spec for spec in CARD.components if spec.name != "vae"]
    loaded = load_components(precise, paths, device=device, dtype=torch.float32)
    return loaded | load_components(others, paths, device=device, dtype=dtype)


@dataclass(frozen=True, slots=True)
class CosmosComponents:
    """A typed view of the mapping that a builder receives."""

    transformer: Cosmos3OmniTransformer
    vae: AutoencoderKLWan
    text_tokenizer: PreTrainedTokenizerBase
    scheduler: Mapping[str, Any]

    @classmethod
    def of(cls, components: Mapping[str, Any]) -> CosmosComponents:
        return cls(**{field.name: components[field.name] for field in fields(cls)})
