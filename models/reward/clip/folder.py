"""Inspection of a CLIP folder, without torch.

CLIP models are published flat: configuration, weights, tokenizer and image processor side by side, as
`CLIPModel.save_pretrained` and `CLIPProcessor.save_pretrained` write them into one folder.
"""

from __future__ import annotations

from pathlib import Path

from mutoscope.models.common.files import read_json, weight_files
from mutoscope.models.common.folder import config_class, read_recipe
from mutoscope.models.reward.clip.card import CARD
from mutoscope.models.reward.common.parameters import RewardRecipe
from mutoscope.platform.engine.card import FolderSummary
from mutoscope.platform.errors import InvalidFolder

PROCESSOR_CONFIGS = ("preprocessor_config.json", "processor_config.json")
"""Where an image processor's configuration may be, first choice first."""

_TOKENIZER_FILES = (
    "added_tokens.json",
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
)
_POSITIONS = 77
_IMAGE_SIZE = 224
"""What a CLIPConfig takes where it says nothing."""


def inspect(folder: Path) -> FolderSummary:
    """Check a CLIP folder. Raises InvalidFolder."""
    if not folder.is_dir():
        raise InvalidFolder(f"{folder} is not a folder: give the folder of a CLIPModel")
    config = read_json(folder / "config.json")
    if (found := config_class(config)) != "CLIPModel":
        raise InvalidFolder(
            f"{folder} holds a {found}, not a CLIPModel: {CARD.id} compares text and pictures"
        )
    text, vision = config.get("text_config", {}), config.get("vision_config", {})
    size = vision.get("image_size", _IMAGE_SIZE)
    defaults = {
        "height": size,
        "width": size,
        "max_sequence_length": text.get("max_position_embeddings", _POSITIONS),
    }
    components = {
        "scorer": ("config.json", *weight_files(folder)),
        "tokenizer": _tokenizer(folder),
        "image_processor": (_image_processor(folder),),
    }
    return FolderSummary(
        folder=folder,
        components=components,
        recipe=read_recipe(folder, RewardRecipe, defaults),
        classes={"scorer": "CLIPModel"},
        roots=dict.fromkeys(components, "."),
    )


def _tokenizer(folder: Path) -> tuple[str, ...]:
    names = tuple(name for name in _TOKENIZER_FILES if (folder / name).is_file())
    if "tokenizer_config.json" not in names:
        raise InvalidFolder(f"{folder} has no tokenizer_config.json: copy the tokenizer's files into it")
    if "tokenizer.json" not in names and not {"vocab.json", "merges.txt"} <= set(names):
        raise InvalidFolder(f"{folder} has no tokenizer.json: copy the tokenizer's files into it")
    return names


def _image_processor(folder: Path) -> str:
    for name in PROCESSOR_CONFIGS:
        if (folder / name).is_file():
            read_json(folder / name)
            return name
    raise InvalidFolder(f"{folder} has no {PROCESSOR_CONFIGS[0]}: copy the image processor's file into it")
