"""The loaded parts of a refiner."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast

from mutoscope.models.common.lm_folder import VOCABULARIES
from mutoscope.models.common.loading import load_components, load_tokenizer
from mutoscope.models.refiner.card import CARD


def load(paths: Mapping[str, Path], *, device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """Load those components of the card that `paths` names. Raises InvalidFolder."""
    models = {name: path for name, path in paths.items() if name != "tokenizer"}
    loaded = load_components(CARD.components, models, device=device, dtype=dtype)
    if "tokenizer" in paths:
        loaded["tokenizer"] = _tokenizer(paths["tokenizer"])
    return loaded


def _tokenizer(path: Path) -> Any:
    """A tokenizer is what its `tokenizer.json` says, if it has one: a class made for one kind of model may
    put that kind's usual rules in the place of those in the file.
    """
    told = (path / VOCABULARIES[0]).is_file()
    return load_tokenizer(path, PreTrainedTokenizerFast if told else None)
